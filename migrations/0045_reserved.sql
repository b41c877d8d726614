-- Reserved for another branch: remove this file when that branch is merged.
DO $$ BEGIN END $$;
