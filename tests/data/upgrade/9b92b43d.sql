--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: job_state; Type: TYPE; Schema: public; Owner: -
--

CREATE TYPE public.job_state AS ENUM (
    'queued',
    'running',
    'done',
    'failed',
    'cancelled'
);


--
-- Name: lease_state; Type: TYPE; Schema: public; Owner: -
--

CREATE TYPE public.lease_state AS ENUM (
    'open',
    'held',
    'done',
    'cancelled'
);


--
-- Name: outcome; Type: TYPE; Schema: public; Owner: -
--

CREATE TYPE public.outcome AS ENUM (
    'correct',
    'compile',
    'runtime',
    'correctness',
    'timeout',
    'constraints'
);


--
-- Name: runner; Type: TYPE; Schema: public; Owner: -
--

CREATE TYPE public.runner AS ENUM (
    'build',
    'python'
);


--
-- Name: stage; Type: TYPE; Schema: public; Owner: -
--

CREATE TYPE public.stage AS ENUM (
    'screen',
    'halving',
    'final'
);


--
-- Name: token_role; Type: TYPE; Schema: public; Owner: -
--

CREATE TYPE public.token_role AS ENUM (
    'reader',
    'submitter',
    'agent',
    'admin',
    'demand',
    'enrol',
    'cache-writer',
    'builder',
    'publisher',
    'operator'
);


--
-- Name: append_only(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.append_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'check_violation';
END $$;


--
-- Name: blobs_changed(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.blobs_changed() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO blob_usage AS u (token_id, part, bytes)
        SELECT put_by_id, pg_backend_pid() % 16, sum(size + 4096) * CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END
        FROM changed
        WHERE put_by_id IS NOT NULL
        GROUP BY put_by_id
        ORDER BY put_by_id
    ON CONFLICT (token_id, part) DO UPDATE
        SET bytes = u.bytes + excluded.bytes;
    RETURN NULL;
END
$$;


--
-- Name: builds_set_closure(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.builds_set_closure() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    NEW.closure := NEW.build #>> '{record,function,closure}';
    RETURN NEW;
END $$;


--
-- Name: channel_counter_grows(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.channel_counter_grows() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_OP = 'DELETE' OR NEW.counter < OLD.counter OR NEW.signings < OLD.signings
       OR (NEW.counter = OLD.counter AND NEW.signings = OLD.signings) THEN
        RAISE EXCEPTION 'a channel''s counter only grows' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.counter = OLD.counter AND NEW.release <> OLD.release THEN
        RAISE EXCEPTION 'a channel moves by one more count' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;


--
-- Name: digest_text(bytea); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.digest_text(digest bytea) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ('sha256:'::text || encode(digest, 'hex'::text));


--
-- Name: signed_expiry(timestamp with time zone); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.signed_expiry(at timestamp with time zone) RETURNS json
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN to_json(to_char((at AT TIME ZONE 'UTC'::text), 'YYYY-MM-DD"T"HH24:MI:SS"Z"'::text));


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: channel_entries; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.channel_entries (
    name text NOT NULL,
    environment_digest bytea NOT NULL,
    tag text NOT NULL,
    counter bigint NOT NULL,
    release bytea NOT NULL,
    moved_by text NOT NULL,
    moved_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    regime text DEFAULT 'cold'::text NOT NULL,
    moved_by_id bigint
);


--
-- Name: channel_signatures; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.channel_signatures (
    name text NOT NULL,
    environment_digest bytea NOT NULL,
    tag text NOT NULL,
    counter bigint NOT NULL,
    key bytea NOT NULL,
    signature text NOT NULL,
    added_by text NOT NULL,
    added_at timestamp with time zone DEFAULT now() NOT NULL,
    regime text DEFAULT 'cold'::text NOT NULL,
    added_by_id bigint,
    CONSTRAINT channel_signatures_key_check CHECK ((octet_length(key) = 32)),
    CONSTRAINT channel_signatures_signature_check CHECK ((octet_length(decode(signature, 'base64'::text)) = 64))
);


--
-- Name: entry_signed(text, text, text, bytea, bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.entry_signed(of_name text, of_tag text, of_regime text, of_environment bytea, of_counter bigint) RETURNS TABLE(expires json, signatures json)
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT ( SELECT public.signed_expiry(e.expires_at) AS signed_expiry
            FROM public.channel_entries e
           WHERE ((e.name = entry_signed.of_name) AND (e.tag = entry_signed.of_tag) AND (e.regime = entry_signed.of_regime) AND (e.environment_digest = entry_signed.of_environment) AND (e.counter = entry_signed.of_counter))) AS signed_expiry,
     ( SELECT COALESCE(json_agg(json_build_object('key', public.digest_text(s.key), 'signature', s.signature) ORDER BY s.key), '[]'::json) AS "coalesce"
            FROM public.channel_signatures s
           WHERE ((s.name = entry_signed.of_name) AND (s.tag = entry_signed.of_tag) AND (s.regime = entry_signed.of_regime) AND (s.environment_digest = entry_signed.of_environment) AND (s.counter = entry_signed.of_counter))) AS "coalesce";
END;


--
-- Name: environment_hardware(json); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.environment_hardware(environment json) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((environment)::jsonb - '{torch,triton}'::text[]);


--
-- Name: epoch_ms(timestamp with time zone); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.epoch_ms(at timestamp with time zone) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ((EXTRACT(epoch FROM at) * (1000)::numeric))::bigint;


--
-- Name: image_fits(text, text[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.image_fits(image text, patterns text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((cardinality(patterns) = 0) OR (image ~~ ANY (SELECT replace(replace(regexp_replace(p.p, '([\\%_])'::text, '\\\1'::text, 'g'::text), '*'::text, '%'::text), '?'::text, '_'::text) AS replace FROM unnest(image_fits.patterns) p(p))));


--
-- Name: is_open(public.lease_state); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.is_open(state public.lease_state) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((state = ANY (ARRAY['open'::public.lease_state, 'held'::public.lease_state])) AND (state <> 'held'::public.lease_state));


--
-- Name: code_signatures; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.code_signatures (
    digest bytea NOT NULL,
    key bytea NOT NULL,
    signature text NOT NULL,
    expires_at timestamp with time zone,
    signed_at timestamp with time zone DEFAULT now() NOT NULL,
    added_by text,
    added_by_id bigint,
    CONSTRAINT code_signatures_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT code_signatures_key_check CHECK ((octet_length(key) = 32))
);


--
-- Name: is_signed(bytea, bytea[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.is_signed(signed bytea, keys bytea[]) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (EXISTS (SELECT FROM public.code_signatures c WHERE ((c.digest = is_signed.signed) AND (c.key = ANY (is_signed.keys)) AND ((c.expires_at IS NULL) OR (c.expires_at > now())))));


--
-- Name: job_agreement(bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.job_agreement(job bigint) RETURNS TABLE(config bigint, agreement text, interpreted text, example text)
    LANGUAGE sql STABLE
    AS $$
    SELECT m.config,
        (ARRAY['bitwise', 'agrees', 'disagrees'])[
            max(array_position(ARRAY['bitwise', 'agrees', 'disagrees'], m.conditions ->> 'agreement'))],
        (ARRAY['agrees', 'disagrees'])[
            max(array_position(ARRAY['agrees', 'disagrees'], m.conditions ->> 'interpreted'))],
        min(left(m.detail, 300)) FILTER (WHERE m.conditions ->> 'agreement' = 'disagrees')
    FROM measurements m
    WHERE m.job_id = job AND NOT m.late AND m.conditions IS NOT NULL
    GROUP BY m.config
$$;


--
-- Name: jobs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.jobs (
    id bigint NOT NULL,
    kernel bytea NOT NULL,
    key json NOT NULL,
    key_digest bytea NOT NULL,
    space_digest bytea NOT NULL,
    environment_id bigint NOT NULL,
    tag text NOT NULL,
    run text NOT NULL,
    state public.job_state DEFAULT 'queued'::public.job_state NOT NULL,
    stage public.stage DEFAULT 'screen'::public.stage NOT NULL,
    round integer DEFAULT 0 NOT NULL,
    priority integer NOT NULL,
    budget_device_ms bigint,
    baseline bigint NOT NULL,
    seed bigint NOT NULL,
    configs bigint NOT NULL,
    runner public.runner DEFAULT 'build'::public.runner NOT NULL,
    build bytea,
    device_class bytea NOT NULL,
    events integer DEFAULT 0 NOT NULL,
    reason text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    baseline_from text DEFAULT 'default'::text NOT NULL,
    default_config bigint,
    config_us bigint DEFAULT 30000 NOT NULL,
    best_ratio double precision,
    likely bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    search_strategy text,
    search_trials integer,
    final_devices integer DEFAULT 1 NOT NULL,
    regime text DEFAULT 'cold'::text NOT NULL,
    purpose text DEFAULT 'tune'::text NOT NULL,
    is_plain boolean DEFAULT true NOT NULL,
    submitted_by text,
    submitted_by_id bigint,
    cancelled_by text,
    cancelled_by_id bigint,
    disagreeing int8multirange,
    owner_id integer DEFAULT 0 NOT NULL,
    retry_of bigint,
    retried_at timestamp with time zone,
    CONSTRAINT jobs_baseline_check CHECK ((baseline >= 0)),
    CONSTRAINT jobs_best_ratio_check CHECK ((best_ratio > (0)::double precision)),
    CONSTRAINT jobs_budget_device_ms_check CHECK ((budget_device_ms > 0)),
    CONSTRAINT jobs_check CHECK (((state = ANY (ARRAY['done'::public.job_state, 'failed'::public.job_state, 'cancelled'::public.job_state])) = (finished_at IS NOT NULL))),
    CONSTRAINT jobs_check1 CHECK (((state = 'failed'::public.job_state) <= (reason IS NOT NULL))),
    CONSTRAINT jobs_check2 CHECK (((retried_at IS NULL) OR (state = ANY (ARRAY['failed'::public.job_state, 'cancelled'::public.job_state])))),
    CONSTRAINT jobs_config_us_check CHECK ((config_us > 0)),
    CONSTRAINT jobs_configs_check CHECK ((configs > 0)),
    CONSTRAINT jobs_default_config_check CHECK ((default_config >= 0)),
    CONSTRAINT jobs_device_class_check CHECK ((octet_length(device_class) = 32)),
    CONSTRAINT jobs_final_devices_check CHECK (((final_devices >= 1) AND (final_devices <= 16))),
    CONSTRAINT jobs_key_digest_check CHECK ((octet_length(key_digest) = 32)),
    CONSTRAINT jobs_priority_check CHECK (((priority >= '-1000'::integer) AND (priority <= 1000))),
    CONSTRAINT jobs_purpose_check CHECK ((purpose = ANY (ARRAY['tune'::text, 'revalidate'::text]))),
    CONSTRAINT jobs_regime_check CHECK ((regime = ANY (ARRAY['cold'::text, 'warm'::text]))),
    CONSTRAINT jobs_round_check CHECK ((round >= 0)),
    CONSTRAINT jobs_search CHECK (((search_strategy IS NULL) = (search_trials IS NULL))),
    CONSTRAINT jobs_search_strategy_check CHECK ((search_strategy = ANY (ARRAY['random'::text, 'descent'::text, 'evolution'::text]))),
    CONSTRAINT jobs_search_trials_check CHECK ((search_trials > 0)),
    CONSTRAINT jobs_tag_check CHECK ((tag <> ''::text))
)
WITH (fillfactor='80');


--
-- Name: job_configs(public.jobs); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.job_configs(job public.jobs) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN LEAST((job).configs, COALESCE(((job).search_trials)::bigint, (job).configs));


--
-- Name: environments; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.environments (
    id bigint NOT NULL,
    digest bytea NOT NULL,
    hardware_digest bytea NOT NULL,
    identity json NOT NULL,
    CONSTRAINT environments_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT environments_hardware_digest_check CHECK ((octet_length(hardware_digest) = 32))
);


--
-- Name: winners; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.winners (
    job_id bigint NOT NULL,
    config bigint NOT NULL,
    config_values json NOT NULL,
    verdict json NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    quarantined text,
    flagged json,
    agreement text,
    interpreted boolean DEFAULT false NOT NULL,
    others json,
    CONSTRAINT winners_agreement_check CHECK ((agreement = ANY (ARRAY['none'::text, 'bitwise'::text, 'interpreted'::text, 'agrees'::text, 'disagrees'::text]))),
    CONSTRAINT winners_config_check CHECK ((config >= 0))
);


--
-- Name: job_of_capture(bytea, bytea, jsonb); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.job_of_capture(captured_kernel bytea, captured_key bytea, hardware jsonb) RETURNS TABLE(job bigint, environment_id bigint, state text, reason text)
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT j.id,
     j.environment_id,
         CASE
             WHEN (j.state = 'running'::public.job_state) THEN 'tuning'::text
             WHEN (j.state = ANY (ARRAY['queued'::public.job_state, 'failed'::public.job_state, 'cancelled'::public.job_state])) THEN (j.state)::text
             WHEN (w.job_id IS NULL) THEN 'failed'::text
             WHEN ((w.quarantined IS NOT NULL) OR ((w.verdict ->> 'verdict'::text) = 'AMBIGUOUS'::text)) THEN 'undecided'::text
             ELSE 'tuned'::text
         END AS "case",
     COALESCE(j.reason, w.quarantined) AS "coalesce"
    FROM ((public.jobs j
      JOIN public.environments e ON ((e.id = j.environment_id)))
      LEFT JOIN public.winners w ON ((w.job_id = j.id)))
   WHERE ((j.kernel = job_of_capture.captured_kernel) AND (j.key_digest = job_of_capture.captured_key) AND (j.tag = 'default'::text) AND (j.regime = 'cold'::text) AND (j.purpose = 'tune'::text) AND ((e.identity)::jsonb @> job_of_capture.hardware))
   ORDER BY (j.state = 'cancelled'::public.job_state), j.id DESC
  LIMIT 1;
END;


--
-- Name: leases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.leases (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    stage public.stage NOT NULL,
    round integer NOT NULL,
    process integer NOT NULL,
    configs int8multirange NOT NULL,
    remaining int8multirange NOT NULL,
    state public.lease_state DEFAULT 'open'::public.lease_state NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    device_class bytea NOT NULL,
    priority integer NOT NULL,
    avoid_agents text[] DEFAULT '{}'::text[] NOT NULL,
    agent text,
    device text,
    nonce text,
    granted_at timestamp with time zone,
    expires_at timestamp with time zone,
    current_config bigint,
    posts integer DEFAULT 0 NOT NULL,
    fruitless integer DEFAULT 0 NOT NULL,
    device_us bigint DEFAULT 0 NOT NULL,
    outcomes integer[] DEFAULT '{0,0,0,0,0,0}'::integer[] NOT NULL,
    config_us bigint,
    is_split boolean DEFAULT false NOT NULL,
    apart_until timestamp with time zone,
    token_id bigint,
    opening_us bigint DEFAULT 0 NOT NULL,
    epoch_opening_us bigint DEFAULT 0 NOT NULL,
    owner_id integer DEFAULT 0 NOT NULL,
    epoch_device_us bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone,
    CONSTRAINT leases_check CHECK ((remaining <@ configs)),
    CONSTRAINT leases_check1 CHECK (((state <> 'held'::public.lease_state) OR ((agent IS NOT NULL) AND (device IS NOT NULL) AND (nonce IS NOT NULL) AND (expires_at IS NOT NULL) AND (NOT isempty(remaining))))),
    CONSTRAINT leases_check2 CHECK (((state <> 'open'::public.lease_state) OR (NOT isempty(remaining)))),
    CONSTRAINT leases_check3 CHECK (((state <> 'done'::public.lease_state) OR isempty(remaining))),
    CONSTRAINT leases_config_us_check CHECK ((config_us > 0)),
    CONSTRAINT leases_configs_check CHECK ((NOT isempty(configs)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='500', autovacuum_analyze_scale_factor='0.05');


--
-- Name: job_progress(bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.job_progress(job bigint) RETURNS TABLE(spent_device_seconds double precision, opening_device_seconds double precision, measured bigint, outcomes json)
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT (((COALESCE(sum((l.device_us + l.opening_us)), (0)::numeric))::bigint)::double precision / ('1000000'::numeric)::double precision),
     (((COALESCE(sum(l.opening_us), (0)::numeric))::bigint)::double precision / ('1000000'::numeric)::double precision),
     COALESCE(sum((((((l.outcomes[1] + l.outcomes[2]) + l.outcomes[3]) + l.outcomes[4]) + l.outcomes[5]) + l.outcomes[6])) FILTER (WHERE (l.stage = 'screen'::public.stage)), (0)::bigint) AS "coalesce",
     json_strip_nulls(json_build_object('correct', NULLIF(sum(l.outcomes[1]) FILTER (WHERE (l.stage = 'screen'::public.stage)), 0), 'compile', NULLIF(sum(l.outcomes[2]) FILTER (WHERE (l.stage = 'screen'::public.stage)), 0), 'runtime', NULLIF(sum(l.outcomes[3]) FILTER (WHERE (l.stage = 'screen'::public.stage)), 0), 'correctness', NULLIF(sum(l.outcomes[4]) FILTER (WHERE (l.stage = 'screen'::public.stage)), 0), 'timeout', NULLIF(sum(l.outcomes[5]) FILTER (WHERE (l.stage = 'screen'::public.stage)), 0), 'constraints', NULLIF(sum(l.outcomes[6]) FILTER (WHERE (l.stage = 'screen'::public.stage)), 0))) AS json_strip_nulls
    FROM public.leases l
   WHERE (l.job_id = job_progress.job);
END;


--
-- Name: job_spending(bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.job_spending(job bigint) RETURNS TABLE(spent_us bigint, opening_us bigint, openings bigint, measured bigint, final_us bigint, final_processes bigint)
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT (sum((l.device_us + l.opening_us)))::bigint AS sum,
     (sum(l.opening_us))::bigint AS sum,
     count(*) FILTER (WHERE (l.opening_us > 0)) AS count,
     (sum(( SELECT sum(o.o) AS sum
            FROM unnest(l.outcomes) o(o))))::bigint AS sum,
     (sum((l.device_us + l.opening_us)) FILTER (WHERE (l.stage = 'final'::public.stage)))::bigint AS sum,
     count(DISTINCT l.process) FILTER (WHERE ((l.stage = 'final'::public.stage) AND (l.state = 'done'::public.lease_state))) AS count
    FROM public.leases l
   WHERE (l.job_id = job_spending.job);
END;


--
-- Name: job_usage_run(text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.job_usage_run(run text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN regexp_replace(run, '/retried-[0-9]+$'::text, '/retried'::text);


--
-- Name: job_usage; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_usage (
    day date NOT NULL,
    kernel bytea NOT NULL,
    tag text NOT NULL,
    run text NOT NULL,
    owner text NOT NULL,
    part integer NOT NULL,
    done bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    configs bigint NOT NULL,
    measurements bigint NOT NULL,
    device_us bigint NOT NULL,
    done_configs bigint NOT NULL,
    done_us bigint NOT NULL,
    first_at timestamp with time zone NOT NULL,
    last_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');


--
-- Name: job_usage_add(public.jobs, integer); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.job_usage_add(job public.jobs, times integer) RETURNS void
    LANGUAGE sql
    BEGIN ATOMIC
 INSERT INTO public.job_usage AS u (day, kernel, tag, run, owner, part, done, failed, cancelled, configs, measurements, device_us, done_configs, done_us, first_at, last_at)  SELECT (((job_usage_add.job).finished_at AT TIME ZONE 'UTC'::text))::date AS timezone,
             (job_usage_add.job).kernel AS kernel,
             (job_usage_add.job).tag AS tag,
             public.job_usage_run((job_usage_add.job).run) AS job_usage_run,
             COALESCE((job_usage_add.job).submitted_by, ''::text) AS "coalesce",
             (pg_backend_pid() % 16),
             (job_usage_add.times * (((job_usage_add.job).state = 'done'::public.job_state))::integer),
             (job_usage_add.times * (((job_usage_add.job).state = 'failed'::public.job_state))::integer),
             (job_usage_add.times * (((job_usage_add.job).state = 'cancelled'::public.job_state))::integer),
             (job_usage_add.times * public.job_configs(job_usage_add.job)),
             (job_usage_add.times * t.measurements),
             (job_usage_add.times * t.us),
                 CASE
                     WHEN ((job_usage_add.job).state = 'done'::public.job_state) THEN (job_usage_add.times * public.job_configs(job_usage_add.job))
                     ELSE (0)::bigint
                 END AS "case",
                 CASE
                     WHEN ((job_usage_add.job).state = 'done'::public.job_state) THEN (job_usage_add.times * t.us)
                     ELSE (0)::bigint
                 END AS "case",
             (job_usage_add.job).created_at AS created_at,
             (job_usage_add.job).finished_at AS finished_at
            FROM ( SELECT (COALESCE(sum((leases.device_us + leases.opening_us)), (0)::numeric))::bigint AS us,
                     COALESCE(sum((((((leases.outcomes[1] + leases.outcomes[2]) + leases.outcomes[3]) + leases.outcomes[4]) + leases.outcomes[5]) + leases.outcomes[6])), (0)::bigint) AS measurements
                    FROM public.leases
                   WHERE (leases.job_id = (job_usage_add.job).id)) t ON CONFLICT(day, kernel, tag, run, owner, part) DO UPDATE SET done = (u.done + excluded.done), failed = (u.failed + excluded.failed), cancelled = (u.cancelled + excluded.cancelled), configs = (u.configs + excluded.configs), measurements = (u.measurements + excluded.measurements), device_us = (u.device_us + excluded.device_us), done_configs = (u.done_configs + excluded.done_configs), done_us = (u.done_us + excluded.done_us), first_at = LEAST(u.first_at, excluded.first_at), last_at = GREATEST(u.last_at, excluded.last_at);
END;


--
-- Name: job_usage_note(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.job_usage_note() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF OLD.finished_at IS NOT NULL THEN -- it is made open again, or gets another run
        PERFORM job_usage_add(OLD, -1);
    END IF;
    IF NEW.finished_at IS NOT NULL THEN
        PERFORM job_usage_add(NEW, 1);
    END IF;
    RETURN NULL;
END $$;


--
-- Name: job_usage_rebuild(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.job_usage_rebuild() RETURNS void
    LANGUAGE sql
    BEGIN ATOMIC
 DELETE FROM public.job_usage;
 INSERT INTO public.job_usage (day, kernel, tag, run, owner, part, done, failed, cancelled, configs, measurements, device_us, done_configs, done_us, first_at, last_at)  SELECT ((j.finished_at AT TIME ZONE 'UTC'::text))::date AS timezone,
             j.kernel,
             j.tag,
             public.job_usage_run(j.run) AS job_usage_run,
             COALESCE(j.submitted_by, ''::text) AS "coalesce",
             0,
             count(*) FILTER (WHERE (j.state = 'done'::public.job_state)) AS count,
             count(*) FILTER (WHERE (j.state = 'failed'::public.job_state)) AS count,
             count(*) FILTER (WHERE (j.state = 'cancelled'::public.job_state)) AS count,
             sum(public.job_configs(j.*)) AS sum,
             COALESCE(sum(t.measurements), (0)::numeric) AS "coalesce",
             COALESCE(sum(t.us), (0)::numeric) AS "coalesce",
             COALESCE(sum(public.job_configs(j.*)) FILTER (WHERE (j.state = 'done'::public.job_state)), (0)::numeric) AS "coalesce",
             COALESCE(sum(t.us) FILTER (WHERE (j.state = 'done'::public.job_state)), (0)::numeric) AS "coalesce",
             min(j.created_at) AS min,
             max(j.finished_at) AS max
            FROM (public.jobs j
              LEFT JOIN ( SELECT leases.job_id,
                     sum((leases.device_us + leases.opening_us)) AS us,
                     sum((((((leases.outcomes[1] + leases.outcomes[2]) + leases.outcomes[3]) + leases.outcomes[4]) + leases.outcomes[5]) + leases.outcomes[6])) AS measurements
                    FROM public.leases
                   GROUP BY leases.job_id) t ON ((t.job_id = j.id)))
           WHERE (j.finished_at IS NOT NULL)
           GROUP BY (((j.finished_at AT TIME ZONE 'UTC'::text))::date), j.kernel, j.tag, (public.job_usage_run(j.run)), COALESCE(j.submitted_by, ''::text);
END;


--
-- Name: kernel_config_us(bytea); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.kernel_config_us(of_kernel bytea) RETURNS double precision
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (SELECT ((NULLIF(sum(l.us), (0)::numeric))::double precision / (sum(j.configs))::double precision) FROM ((SELECT jobs.id, jobs.configs FROM public.jobs WHERE ((jobs.kernel = kernel_config_us.of_kernel) AND (jobs.state = 'done'::public.job_state) AND (jobs.purpose = 'tune'::text)) ORDER BY jobs.id DESC LIMIT 16) j CROSS JOIN LATERAL (SELECT sum((leases.device_us + leases.opening_us)) AS us FROM public.leases WHERE (leases.job_id = j.id)) l));


--
-- Name: measurement_partition_follow(bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.measurement_partition_follow(newest bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    last measurement_partitions;
    next_end bigint;
    name text;
BEGIN
    SELECT * INTO STRICT last FROM measurement_partitions ORDER BY first_job DESC LIMIT 1;
    IF newest < (last.first_job + last.end_job) / 2 THEN
        RETURN;
    END IF;

    IF newest < last.end_job THEN
        BEGIN
            LOCK TABLE measurements IN SHARE UPDATE EXCLUSIVE MODE NOWAIT;
        EXCEPTION WHEN lock_not_available THEN
            RETURN; -- the next submission tries again
        END;
    ELSE
        LOCK TABLE measurements IN SHARE UPDATE EXCLUSIVE MODE;
    END IF;

    -- Another transaction may have made it meanwhile.
    SELECT * INTO STRICT last FROM measurement_partitions ORDER BY first_job DESC LIMIT 1;
    IF newest < (last.first_job + last.end_job) / 2 THEN
        RETURN;
    END IF;
    next_end := GREATEST(newest, last.end_job) + measurement_partition_width();
    name := 'measurements_' || last.end_job;
    PERFORM measurement_table_make(name, last.end_job, next_end);
    PERFORM measurement_table_attach(name, last.end_job, next_end);
    INSERT INTO measurement_partitions (first_job, end_job, partition)
    VALUES (last.end_job, next_end, name);
END $$;


--
-- Name: measurement_partition_needed(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.measurement_partition_needed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    PERFORM measurement_partition_follow(max(id)) FROM inserted HAVING count(*) > 0;
    RETURN NULL;
END $$;


--
-- Name: measurement_partition_width(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.measurement_partition_width() RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
    SELECT GREATEST(100, LEAST(1000000, 4e6 / size.configs, 30 * pace.jobs / pace.days))::bigint
    FROM (SELECT avg(LEAST(configs, search_trials)) AS configs
          FROM (SELECT * FROM jobs ORDER BY id DESC LIMIT 1000) newest) size,
         (SELECT count(*) AS jobs,
                 GREATEST(1, extract(epoch FROM now() - min(created_at)) / 86400) AS days
          FROM (SELECT created_at FROM jobs ORDER BY id DESC LIMIT 30000) newest) pace
$$;


--
-- Name: measurement_table_attach(text, bigint, bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.measurement_table_attach(name text, first_job bigint, end_job bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    EXECUTE format('ALTER TABLE measurements ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
                   name, first_job, end_job);
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT measurements_range', name);
END $$;


--
-- Name: measurement_table_make(text, bigint, bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.measurement_table_make(name text, first_job bigint, end_job bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    EXECUTE format(
        'CREATE TABLE %I (
             LIKE measurements INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
             CONSTRAINT measurements_range CHECK (job_id >= %s AND job_id < %s),
             PRIMARY KEY (job_id, id),
             UNIQUE (lease_id, epoch, seq)
         ) WITH (autovacuum_vacuum_insert_scale_factor = 0.05,
                 autovacuum_analyze_scale_factor = 0.02)', name, first_job, end_job);
    EXECUTE format('CREATE UNIQUE INDEX %I ON %I (job_id, stage, round, process, config)
                    WHERE NOT late', name || '_once', name);
END $$;


--
-- Name: measurements_due(integer); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.measurements_due(keep_days integer) RETURNS TABLE(first_job bigint, end_job bigint, partition text, jobs bigint, bytes bigint)
    LANGUAGE sql STABLE
    AS $$
    SELECT p.first_job, p.end_job, p.partition,
        (SELECT count(*) FROM jobs j WHERE j.id >= p.first_job AND j.id < p.end_job),
        pg_total_relation_size(p.partition::regclass)
    FROM measurement_partitions p
    WHERE p.emptied_at IS NULL
      AND EXISTS (SELECT
                  FROM jobs j
                  WHERE j.id >= p.end_job AND j.created_at < now() - interval '1 hour')
      AND NOT EXISTS (
          SELECT
          FROM jobs j
          WHERE j.id >= p.first_job AND j.id < p.end_job
            AND (j.finished_at IS NULL
                 OR j.finished_at >= now() - make_interval(days => keep_days)))
    ORDER BY p.first_job
$$;


--
-- Name: measurements_needed(bigint, bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.measurements_needed(from_job bigint, before_job bigint) RETURNS SETOF bigint
    LANGUAGE sql STABLE
    AS $$
    SELECT (winner ->> 4)::bigint
    FROM releases r
    CROSS JOIN json_array_elements(convert_from(r.bytes, 'UTF8')::json -> 'kernels') AS kernel
    CROSS JOIN json_array_elements(kernel -> 'winners') AS winner
    WHERE (winner ->> 4)::bigint >= from_job AND (winner ->> 4)::bigint < before_job
    UNION
    SELECT j.id
    FROM jobs j
    JOIN winners w ON w.job_id = j.id
    WHERE j.id >= from_job AND j.id < before_job AND j.state = 'done'
      AND NOT EXISTS (
          SELECT
          FROM jobs newer
          JOIN winners n ON n.job_id = newer.id
          WHERE (newer.environment_id, newer.tag, newer.regime, newer.kernel, newer.key_digest)
                = (j.environment_id, j.tag, j.regime, j.kernel, j.key_digest)
            AND newer.state = 'done' AND newer.id > j.id
            AND n.verdict ->> 'verdict' <> 'AMBIGUOUS'
            AND n.flagged IS NULL AND n.quarantined IS NULL)
$$;


--
-- Name: measurements_remove(bigint, integer); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.measurements_remove(of_first_job bigint, keep_days integer) RETURNS TABLE(jobs bigint, bytes bigint, kept bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET lock_timeout TO '2s'
    SET search_path TO 'public', 'pg_temp'
    AS $_$
DECLARE
    due record;
    old text[];
    old_name text;
    from_job bigint;
    before_job bigint;
    name text;
    needed bigint[];
    unended bigint[];
    n bigint;
BEGIN
    PERFORM FROM measurement_partitions p WHERE p.first_job = of_first_job FOR UPDATE;
    SELECT * INTO due FROM measurements_due(keep_days) d WHERE d.first_job = of_first_job;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    SELECT array_agg(DISTINCT p.partition) INTO old
    FROM measurement_partitions p
    WHERE p.first_job = of_first_job
       OR (p.emptied_at IS NOT NULL AND (p.end_job = due.first_job OR p.first_job = due.end_job));
    SELECT min(p.first_job), max(p.end_job) INTO from_job, before_job
    FROM measurement_partitions p
    WHERE p.partition = ANY (old);
    FOREACH old_name IN ARRAY old LOOP
        EXECUTE format('LOCK TABLE %I IN SHARE MODE', old_name);
    END LOOP;

    -- A job that was added to an emptied range later may not have ended: it keeps everything.
    unended := ARRAY(
        SELECT id
        FROM jobs j
        WHERE j.id >= from_job AND j.id < before_job
          AND (j.finished_at IS NULL
               OR j.finished_at >= now() - make_interval(days => keep_days)));
    needed := ARRAY(
        SELECT measurements_needed(from_job, before_job)
        EXCEPT
        SELECT unnest(unended));
    name := 'measurements_kept_' || from_job || '_' || before_job;
    PERFORM measurement_table_make(name, from_job, before_job);
    EXECUTE format(
        'INSERT INTO %I
         SELECT m.*
         FROM unnest($3) AS job (id)
         CROSS JOIN LATERAL (
             SELECT *
             FROM measurements
             WHERE job_id >= $1 AND job_id < $2
               AND job_id = job.id AND stage = ''final'' AND NOT late) m
         UNION ALL
         SELECT m.*
         FROM unnest($4) AS job (id)
         CROSS JOIN LATERAL (
             SELECT *
             FROM measurements
             WHERE job_id >= $1 AND job_id < $2 AND job_id = job.id) m', name)
    USING from_job, before_job, needed, unended;
    GET DIAGNOSTICS n = ROW_COUNT;
    EXECUTE format('ANALYZE %I', name);
    EXECUTE format(
        'DELETE FROM measurement_objects o
         WHERE o.job_id >= $1 AND o.job_id < $2
           AND NOT EXISTS (SELECT FROM %I k WHERE k.job_id = o.job_id AND k.id = o.measurement)',
        name)
    USING from_job, before_job;

    FOREACH old_name IN ARRAY old LOOP
        EXECUTE format('ALTER TABLE measurements DETACH PARTITION %I', old_name);
        EXECUTE format('DROP TABLE %I', old_name);
    END LOOP;
    PERFORM measurement_table_attach(name, from_job, before_job);
    UPDATE measurement_partitions p
    SET partition = name, emptied_at = COALESCE(p.emptied_at, now())
    WHERE p.partition = ANY (old);
    RETURN QUERY SELECT due.jobs, due.bytes, n;
END $_$;


--
-- Name: queue_waited_ms(bytea, integer, integer, bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.queue_waited_ms(class bytea, owner integer, of_priority integer, job bigint) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
SELECT (extract(epoch FROM now() - GREATEST((SELECT created_at FROM jobs WHERE id = job),
                                            (SELECT waiting_since FROM lease_queues
                                             WHERE device_class = class AND owner_id = owner AND priority = of_priority))) * 1000)::bigint
$$;


--
-- Name: recent_config_us(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.recent_config_us() RETURNS double precision
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (SELECT ((NULLIF(sum(l.us), (0)::numeric))::double precision / (sum(j.configs))::double precision) FROM (((SELECT winners.job_id FROM public.winners ORDER BY winners.at DESC LIMIT 64) w JOIN public.jobs j ON ((j.id = w.job_id))) CROSS JOIN LATERAL (SELECT sum((leases.device_us + leases.opening_us)) AS us FROM public.leases WHERE (leases.job_id = j.id)) l));


--
-- Name: remote_files_changed(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.remote_files_changed() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO remote_usage AS u (token_id, part, files, bytes)
            SELECT token_id, pg_backend_pid() % 16, count(*), sum(size)
            FROM added
            GROUP BY token_id
            ORDER BY token_id
        ON CONFLICT (token_id, part) DO UPDATE
            SET files = u.files + excluded.files, bytes = u.bytes + excluded.bytes;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO remote_usage AS u (token_id, part, files, bytes)
            SELECT token_id, pg_backend_pid() % 16, -count(*), -sum(size)
            FROM removed
            GROUP BY token_id
            ORDER BY token_id
        ON CONFLICT (token_id, part) DO UPDATE
            SET files = u.files + excluded.files, bytes = u.bytes + excluded.bytes;
    END IF;
    RETURN NULL;
END
$$;


--
-- Name: rfc3339(timestamp with time zone); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.rfc3339(at timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN to_char((at AT TIME ZONE 'UTC'::text), 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'::text);


--
-- Name: share_decayed(double precision, timestamp with time zone); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.share_decayed(amount double precision, at timestamp with time zone) RETURNS double precision
    LANGUAGE sql STABLE
    AS $$
SELECT CASE WHEN amount > 1e-6 AND at > now() - interval '10 hours' -- else there might be an underflow
            THEN amount * power(0.5::double precision, GREATEST(extract(epoch FROM now() - at)::double precision, 0) / 600)
            ELSE 0 END
$$;


--
-- Name: signatures_of(bytea); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.signatures_of(signed bytea) RETURNS json
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (SELECT COALESCE(json_agg(json_strip_nulls(json_build_object('key', ('sha256:'::text || encode(c.key, 'hex'::text)), 'signature', c.signature, 'expires', to_char((c.expires_at AT TIME ZONE 'UTC'::text), 'YYYY-MM-DD"T"HH24:MI:SS"Z"'::text))) ORDER BY c.signed_at, c.key), '[]'::json) AS "coalesce" FROM public.code_signatures c WHERE (c.digest = signatures_of.signed));


--
-- Name: tokens; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.tokens (
    id bigint NOT NULL,
    name text NOT NULL,
    role public.token_role NOT NULL,
    digest bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    revoked_at timestamp with time zone,
    expires_at timestamp with time zone,
    agent text,
    replaces bigint,
    uses_left integer,
    agent_name text,
    environment json,
    also public.token_role[] DEFAULT '{}'::public.token_role[] NOT NULL,
    channels text[],
    certificate text,
    made_by text,
    made_by_id bigint,
    revoked_by text,
    revoked_by_id bigint,
    issuer text,
    CONSTRAINT tokens_channels_check CHECK ((cardinality(channels) > 0)),
    CONSTRAINT tokens_check CHECK ((revoked_at >= created_at)),
    CONSTRAINT tokens_check1 CHECK ((((role)::text = 'enrol'::text) = (uses_left IS NOT NULL))),
    CONSTRAINT tokens_check2 CHECK ((((role)::text = 'agent'::text) OR (agent IS NULL))),
    CONSTRAINT tokens_check3 CHECK ((((role)::text = 'enrol'::text) OR ((agent_name IS NULL) AND (environment IS NULL)))),
    CONSTRAINT tokens_check4 CHECK ((((role)::text <> ALL (ARRAY['agent'::text, 'enrol'::text, 'admin'::text])) OR (also = '{}'::public.token_role[]))),
    CONSTRAINT tokens_check5 CHECK (((array_position((also)::text[], 'agent'::text) IS NULL) AND (array_position((also)::text[], 'enrol'::text) IS NULL) AND (array_position((also)::text[], 'admin'::text) IS NULL) AND (array_position((also)::text[], (role)::text) IS NULL))),
    CONSTRAINT tokens_check6 CHECK (((((role)::text = 'publisher'::text) OR (array_position((also)::text[], 'publisher'::text) IS NOT NULL)) = (channels IS NOT NULL))),
    CONSTRAINT tokens_check7 CHECK (((issuer IS NULL) OR ((expires_at IS NOT NULL) AND ((role)::text <> ALL (ARRAY['agent'::text, 'enrol'::text, 'admin'::text]))))),
    CONSTRAINT tokens_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT tokens_name_check CHECK (
CASE
    WHEN (issuer IS NULL) THEN (name ~ '^[A-Za-z0-9._-]{1,64}$'::text)
    ELSE ((name ~ '^[a-z0-9-]{1,16}:[!-~]+$'::text) AND (length(name) <= 200))
END),
    CONSTRAINT tokens_uses_left_check CHECK ((uses_left >= 0))
);


--
-- Name: token_is_live(public.tokens); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.token_is_live(token public.tokens) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (((token).revoked_at IS NULL) AND (((token).expires_at IS NULL) OR ((token).expires_at > now())));


--
-- Name: agents; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.agents (
    id text NOT NULL,
    boot text NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    drain_reason text,
    enrolled_at timestamp with time zone DEFAULT now() NOT NULL,
    last_seen timestamp with time zone DEFAULT now() NOT NULL,
    token_id bigint,
    machine text,
    refused_at timestamp with time zone,
    refused_machine text,
    refused_name text,
    trusted_keys bytea[],
    drained_by text,
    drained_by_id bigint,
    removed_at timestamp with time zone,
    removed_by text,
    removed_by_id bigint,
    CONSTRAINT agents_id_check CHECK ((id ~ '^[0-9a-f]{32}$'::text)),
    CONSTRAINT agents_trusted_keys_check CHECK ((trusted_keys <> '{}'::bytea[]))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='200');


--
-- Name: audit; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    token text NOT NULL,
    token_id bigint,
    role text NOT NULL,
    peer text,
    action text NOT NULL,
    object text NOT NULL,
    detail json NOT NULL
);


--
-- Name: audit_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: blob_chunks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.blob_chunks (
    digest bytea NOT NULL,
    ordinal integer NOT NULL,
    bytes bytea NOT NULL,
    CONSTRAINT blob_chunks_ordinal_check CHECK (((ordinal >= 0) AND (ordinal <= 255)))
);
ALTER TABLE ONLY public.blob_chunks ALTER COLUMN bytes SET STORAGE EXTERNAL;


--
-- Name: blob_usage; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.blob_usage (
    token_id bigint NOT NULL,
    part integer NOT NULL,
    bytes bigint NOT NULL
)
WITH (fillfactor='50');


--
-- Name: blobs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.blobs (
    digest bytea NOT NULL,
    size bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    put_by text,
    put_by_id bigint,
    CONSTRAINT blobs_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT blobs_size_check CHECK (((size >= 0) AND (size <= 67108864)))
);


--
-- Name: build_caches; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.build_caches (
    folder text NOT NULL,
    build bytea NOT NULL,
    files json NOT NULL
);


--
-- Name: build_files; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.build_files (
    build bytea NOT NULL,
    digest bytea NOT NULL
);


--
-- Name: builds; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.builds (
    id bigint NOT NULL,
    digest bytea NOT NULL,
    kernel bytea NOT NULL,
    arch text NOT NULL,
    triton text,
    torch text,
    rocm text,
    variants integer NOT NULL,
    build json NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    head json NOT NULL,
    made_by text,
    made_by_id bigint,
    closure text,
    CONSTRAINT builds_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT builds_variants_check CHECK ((variants >= 1))
);


--
-- Name: builds_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.builds ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.builds_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: captured_launches; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.captured_launches (
    id bigint NOT NULL,
    function_id bigint NOT NULL,
    token_id bigint NOT NULL,
    digest bytea NOT NULL,
    key json NOT NULL,
    key_digest bytea NOT NULL,
    arch text NOT NULL,
    triton text NOT NULL,
    document text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL,
    seen bigint DEFAULT 1 NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    leased_until timestamp with time zone,
    leased_by text,
    build bytea,
    kernel bytea,
    refused text,
    environment json NOT NULL,
    image text NOT NULL,
    space_digest bytea,
    configs bigint,
    job_id bigint,
    not_queued text,
    decided_at timestamp with time zone,
    CONSTRAINT captured_launches_check CHECK (((build IS NULL) OR (refused IS NULL))),
    CONSTRAINT captured_launches_check1 CHECK (((build IS NULL) OR ((kernel IS NOT NULL) AND (space_digest IS NOT NULL) AND (configs IS NOT NULL)))),
    CONSTRAINT captured_launches_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT captured_launches_key_digest_check CHECK ((octet_length(key_digest) = 32))
)
WITH (fillfactor='80');


--
-- Name: channels; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.channels (
    id bigint NOT NULL,
    name text NOT NULL,
    environment_digest bytea NOT NULL,
    tag text NOT NULL,
    release bytea NOT NULL,
    counter bigint NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    signings bigint DEFAULT 0 NOT NULL,
    regime text DEFAULT 'cold'::text NOT NULL,
    CONSTRAINT channels_counter_check CHECK ((counter > 0)),
    CONSTRAINT channels_name_check CHECK ((name ~ '^[a-z0-9._-]{1,64}$'::text))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='50');


--
-- Name: proposals; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.proposals (
    id bigint NOT NULL,
    channel text NOT NULL,
    release bytea NOT NULL,
    environment_digest bytea NOT NULL,
    environment json NOT NULL,
    tag text NOT NULL,
    regime text NOT NULL,
    winners bigint NOT NULL,
    images text[] NOT NULL,
    etag text,
    changes json NOT NULL,
    state text DEFAULT 'open'::text NOT NULL,
    reason text,
    made_at timestamp with time zone DEFAULT now() NOT NULL,
    decided_at timestamp with time zone,
    decided_by text,
    decided_by_id bigint,
    CONSTRAINT proposals_check CHECK (((state = 'open'::text) = (decided_at IS NULL))),
    CONSTRAINT proposals_state_check CHECK ((state = ANY (ARRAY['open'::text, 'promoted'::text, 'rejected'::text, 'replaced'::text])))
);


--
-- Name: release_captures; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.release_captures (
    release bytea NOT NULL,
    kernel bytea NOT NULL,
    key_digest bytea NOT NULL
);


--
-- Name: releases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.releases (
    id bigint NOT NULL,
    digest bytea NOT NULL,
    environment_digest bytea NOT NULL,
    environment json NOT NULL,
    tag text NOT NULL,
    winners integer NOT NULL,
    bytes bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    regime text DEFAULT 'cold'::text NOT NULL,
    made_by text,
    made_by_id bigint,
    CONSTRAINT releases_check CHECK ((sha256(bytes) = digest)),
    CONSTRAINT releases_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT releases_environment_digest_check CHECK ((octet_length(environment_digest) = 32)),
    CONSTRAINT releases_regime_check CHECK ((regime = ANY (ARRAY['cold'::text, 'warm'::text]))),
    CONSTRAINT releases_tag_check CHECK ((tag <> ''::text)),
    CONSTRAINT releases_winners_check CHECK ((winners > 0))
);


--
-- Name: capture_states; Type: VIEW; Schema: public; Owner: -
--

CREATE VIEW public.capture_states AS
 SELECT l.id,
    l.function_id,
    l.token_id,
    l.image,
    public.environment_hardware(l.environment) AS hardware,
    l.kernel,
    l.refused,
    l.not_queued,
    j.job,
    j.environment_id,
    j.reason,
    r.channel,
    r.proposal,
        CASE
            WHEN ((l.build IS NULL) AND (l.refused IS NOT NULL)) THEN 'refused'::text
            WHEN ((l.build IS NULL) AND (l.leased_until > now())) THEN 'building'::text
            WHEN (l.build IS NULL) THEN 'waiting'::text
            WHEN (r.channel IS NOT NULL) THEN 'served'::text
            WHEN (r.proposal IS NOT NULL) THEN 'proposed'::text
            WHEN (j.job IS NULL) THEN 'built'::text
            WHEN (j.state <> 'tuned'::text) THEN j.state
            WHEN r.is_released THEN 'released'::text
            ELSE 'tuned'::text
        END AS state
   FROM ((public.captured_launches l
     LEFT JOIN LATERAL public.job_of_capture(l.kernel, l.key_digest, public.environment_hardware(l.environment)) j(job, environment_id, state, reason) ON ((l.build IS NOT NULL)))
     LEFT JOIN LATERAL ( SELECT min(c.name) AS channel,
            min(p.id) AS proposal,
            (count(*) > 0) AS is_released
           FROM (((public.release_captures rc
             JOIN public.releases m ON (((m.digest = rc.release) AND ((m.environment)::jsonb @> public.environment_hardware(l.environment)))))
             LEFT JOIN public.channels c ON ((c.release = rc.release)))
             LEFT JOIN public.proposals p ON (((p.release = rc.release) AND (p.state = 'open'::text))))
          WHERE ((rc.kernel = l.kernel) AND (rc.key_digest = l.key_digest))) r ON ((l.build IS NOT NULL)));


--
-- Name: captured_functions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.captured_functions (
    id bigint NOT NULL,
    token_id bigint NOT NULL,
    closure bytea NOT NULL,
    name text NOT NULL,
    document text NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT captured_functions_closure_check CHECK ((octet_length(closure) = 32))
);


--
-- Name: captured_functions_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.captured_functions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.captured_functions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: captured_launches_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.captured_launches ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.captured_launches_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: channels_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.channels ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.channels_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: choices_signatures; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.choices_signatures (
    release bytea NOT NULL,
    key bytea NOT NULL,
    choices bytea NOT NULL,
    signature text NOT NULL,
    signed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT choices_signatures_choices_check CHECK ((octet_length(choices) = 32)),
    CONSTRAINT choices_signatures_key_check CHECK ((octet_length(key) = 32))
);


--
-- Name: collection_due; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.collection_due (
    at timestamp with time zone NOT NULL,
    is_only boolean DEFAULT true NOT NULL,
    CONSTRAINT collection_due_is_only_check CHECK (is_only)
);


--
-- Name: compatibilities; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.compatibilities (
    id bigint NOT NULL,
    asked json NOT NULL,
    served json NOT NULL,
    reason text NOT NULL,
    made_by text NOT NULL,
    made_at timestamp with time zone DEFAULT now() NOT NULL,
    made_by_id bigint
);


--
-- Name: compatibilities_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.compatibilities ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.compatibilities_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: demand; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.demand (
    id bigint NOT NULL,
    kernel bytea NOT NULL,
    key_digest bytea NOT NULL,
    key json NOT NULL,
    environment_digest bytea NOT NULL,
    environment json NOT NULL,
    tag text NOT NULL,
    hits bigint NOT NULL,
    misses bigint NOT NULL,
    tuning_ms double precision NOT NULL,
    kernel_ms double precision,
    first_at timestamp with time zone DEFAULT now() NOT NULL,
    last_at timestamp with time zone DEFAULT now() NOT NULL,
    job_id bigint,
    refused text,
    decided_at timestamp with time zone,
    regime text DEFAULT 'cold'::text NOT NULL,
    last_by text,
    last_by_id bigint,
    policy_token text,
    policy_image text,
    CONSTRAINT demand_environment_digest_check CHECK ((octet_length(environment_digest) = 32)),
    CONSTRAINT demand_hits_check CHECK ((hits >= 0)),
    CONSTRAINT demand_kernel_ms_check CHECK ((kernel_ms > (0)::double precision)),
    CONSTRAINT demand_key_digest_check CHECK ((octet_length(key_digest) = 32)),
    CONSTRAINT demand_misses_check CHECK ((misses >= 0)),
    CONSTRAINT demand_regime_check CHECK ((regime = ANY (ARRAY['cold'::text, 'warm'::text]))),
    CONSTRAINT demand_tag_check CHECK ((tag <> ''::text)),
    CONSTRAINT demand_tuning_ms_check CHECK ((tuning_ms >= (0)::double precision))
)
WITH (fillfactor='70');


--
-- Name: demand_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.demand ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.demand_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: device_baselines; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.device_baselines (
    agent text NOT NULL,
    device text NOT NULL,
    subject bytea NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    lease_id bigint NOT NULL,
    epoch bigint NOT NULL,
    median_us double precision NOT NULL,
    CONSTRAINT device_baselines_median_us_check CHECK ((median_us > (0)::double precision)),
    CONSTRAINT device_baselines_subject_check CHECK ((octet_length(subject) = 32))
);


--
-- Name: devices; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.devices (
    agent text NOT NULL,
    device text NOT NULL,
    backend text NOT NULL,
    environment_id bigint NOT NULL,
    facts json,
    drain_reason text,
    suspect_since timestamp with time zone,
    history_since timestamp with time zone,
    drained_by text,
    drained_by_id bigint
);


--
-- Name: environments_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.environments ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.environments_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: evidence; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.evidence (
    id bigint NOT NULL,
    environment_digest bytea NOT NULL,
    environment json NOT NULL,
    tag text NOT NULL,
    regime text NOT NULL,
    function bytea NOT NULL,
    key_digest bytea NOT NULL,
    token_id bigint NOT NULL,
    node text NOT NULL,
    name text NOT NULL,
    key json NOT NULL,
    near json NOT NULL,
    configs bigint NOT NULL,
    ms double precision,
    tuning_ms double precision,
    last_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT evidence_environment_digest_check CHECK ((octet_length(environment_digest) = 32)),
    CONSTRAINT evidence_function_check CHECK ((octet_length(function) = 32)),
    CONSTRAINT evidence_key_digest_check CHECK ((octet_length(key_digest) = 32))
)
WITH (fillfactor='80');


--
-- Name: evidence_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.evidence ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.evidence_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: held_leases; Type: VIEW; Schema: public; Owner: -
--

CREATE VIEW public.held_leases AS
 SELECT leases.id,
    leases.job_id,
    leases.owner_id,
    leases.epoch,
    leases.agent,
    leases.device,
    leases.fruitless,
    leases.expires_at,
    leases.due_at,
    ((((EXTRACT(epoch FROM (now() - leases.granted_at)) * '1000000'::numeric))::bigint - leases.epoch_device_us) - leases.epoch_opening_us) AS uncharged_us,
        CASE
            WHEN (leases.current_config <@ leases.remaining) THEN leases.current_config
            ELSE NULL::bigint
        END AS config
   FROM public.leases
  WHERE (leases.state = 'held'::public.lease_state);


--
-- Name: images; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.images (
    digest bytea NOT NULL,
    identity json NOT NULL,
    put_by text NOT NULL,
    put_at timestamp with time zone DEFAULT now() NOT NULL,
    put_by_id bigint,
    CONSTRAINT images_check CHECK ((sha256(convert_to((identity)::text, 'UTF8'::name)) = digest)),
    CONSTRAINT images_digest_check CHECK ((octet_length(digest) = 32))
);


--
-- Name: imports; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.imports (
    id bigint NOT NULL,
    kernel bytea NOT NULL,
    key_digest bytea NOT NULL,
    key json NOT NULL,
    environment_digest bytea NOT NULL,
    environment json NOT NULL,
    tag text NOT NULL,
    config json NOT NULL,
    ms double precision[] NOT NULL,
    provenance json NOT NULL,
    format text NOT NULL,
    imported_by text NOT NULL,
    imported_at timestamp with time zone DEFAULT now() NOT NULL,
    imported_by_id bigint,
    CONSTRAINT imports_environment_digest_check CHECK ((octet_length(environment_digest) = 32)),
    CONSTRAINT imports_format_check CHECK ((format <> ''::text)),
    CONSTRAINT imports_key_digest_check CHECK ((octet_length(key_digest) = 32)),
    CONSTRAINT imports_ms_check CHECK ((cardinality(ms) = ANY (ARRAY[0, 1, 3]))),
    CONSTRAINT imports_tag_check CHECK ((tag <> ''::text))
);


--
-- Name: imports_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.imports ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.imports_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: job_events; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_events (
    job_id bigint NOT NULL,
    event integer NOT NULL,
    kind text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    detail json NOT NULL
);


--
-- Name: job_leases; Type: VIEW; Schema: public; Owner: -
--

CREATE VIEW public.job_leases AS
 SELECT l.job_id,
    (sum(l.open))::bigint AS open,
    (sum(l.held))::bigint AS held,
    min(l.held_since) AS held_since
   FROM ( SELECT leases.job_id,
            count(*) AS open,
            0 AS held,
            NULL::timestamp with time zone AS held_since
           FROM public.leases
          WHERE (leases.state = 'open'::public.lease_state)
          GROUP BY leases.job_id
        UNION ALL
         SELECT leases.job_id,
            0,
            count(*) AS count,
            min(leases.granted_at) AS min
           FROM public.leases
          WHERE (leases.state = 'held'::public.lease_state)
          GROUP BY leases.job_id) l
  GROUP BY l.job_id;


--
-- Name: jobs_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.jobs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.jobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: kernel_files; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.kernel_files (
    kernel bytea NOT NULL,
    digest bytea NOT NULL
);


--
-- Name: kernels; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.kernels (
    id bigint NOT NULL,
    hash bytea NOT NULL,
    name text NOT NULL,
    language text NOT NULL,
    manifest json NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    made_by text,
    made_by_id bigint,
    CONSTRAINT kernels_hash_check CHECK ((octet_length(hash) = 32)),
    CONSTRAINT kernels_language_check CHECK ((language = ANY (ARRAY['hip'::text, 'triton'::text, 'c'::text, 'external'::text]))),
    CONSTRAINT kernels_name_check CHECK ((name <> ''::text))
);


--
-- Name: kernels_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.kernels ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.kernels_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: lease_queues; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.lease_queues (
    device_class bytea NOT NULL,
    owner_id integer NOT NULL,
    priority integer NOT NULL,
    waiting_since timestamp with time zone NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='200');


--
-- Name: leases_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.leases ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.leases_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: losses; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.losses (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    config bigint NOT NULL,
    lease_id bigint NOT NULL,
    epoch bigint NOT NULL,
    agent text NOT NULL,
    device text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    judged_at timestamp with time zone,
    subjects bytea[] DEFAULT '{}'::bytea[] NOT NULL
);


--
-- Name: losses_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.losses ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.losses_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: measurement_objects; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.measurement_objects (
    job_id bigint NOT NULL,
    measurement bigint NOT NULL,
    object bytea NOT NULL
);


--
-- Name: measurement_partitions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.measurement_partitions (
    first_job bigint NOT NULL,
    end_job bigint NOT NULL,
    partition text NOT NULL,
    made_at timestamp with time zone DEFAULT now() NOT NULL,
    emptied_at timestamp with time zone,
    CONSTRAINT measurement_partitions_check CHECK ((end_job > first_job))
);


--
-- Name: measurements; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.measurements (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    lease_id bigint NOT NULL,
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    body_digest bytea,
    config bigint NOT NULL,
    stage public.stage NOT NULL,
    round integer NOT NULL,
    process integer NOT NULL,
    agent text,
    device text,
    outcome public.outcome NOT NULL,
    detail text,
    timer text,
    regime text,
    samples_us real[] DEFAULT '{}'::real[] NOT NULL,
    baseline_us real[] DEFAULT '{}'::real[] NOT NULL,
    ratio double precision,
    clock_mhz double precision,
    compile_ms bigint,
    device_us bigint,
    vgprs integer,
    agprs integer,
    spills integer,
    lds_bytes integer,
    occupancy integer,
    late boolean NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    conditions json,
    "end" text,
    quarantined boolean DEFAULT false NOT NULL,
    temperature_c real,
    CONSTRAINT measurements_body_digest_check CHECK ((octet_length(body_digest) = 32)),
    CONSTRAINT measurements_check CHECK (((seq > 0) = (body_digest IS NOT NULL))),
    CONSTRAINT measurements_check1 CHECK ((cardinality(samples_us) = cardinality(baseline_us))),
    CONSTRAINT measurements_check2 CHECK (((outcome = 'correct'::public.outcome) <= ((cardinality(samples_us) > 0) AND (ratio IS NOT NULL)))),
    CONSTRAINT measurements_config_check CHECK ((config >= 0))
)
PARTITION BY RANGE (job_id);


--
-- Name: measurements_0; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.measurements_0 (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    lease_id bigint NOT NULL,
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    body_digest bytea,
    config bigint NOT NULL,
    stage public.stage NOT NULL,
    round integer NOT NULL,
    process integer NOT NULL,
    agent text,
    device text,
    outcome public.outcome NOT NULL,
    detail text,
    timer text,
    regime text,
    samples_us real[] DEFAULT '{}'::real[] NOT NULL,
    baseline_us real[] DEFAULT '{}'::real[] NOT NULL,
    ratio double precision,
    clock_mhz double precision,
    compile_ms bigint,
    device_us bigint,
    vgprs integer,
    agprs integer,
    spills integer,
    lds_bytes integer,
    occupancy integer,
    late boolean NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    conditions json,
    "end" text,
    quarantined boolean DEFAULT false NOT NULL,
    temperature_c real,
    CONSTRAINT measurements_body_digest_check CHECK ((octet_length(body_digest) = 32)),
    CONSTRAINT measurements_check CHECK (((seq > 0) = (body_digest IS NOT NULL))),
    CONSTRAINT measurements_check1 CHECK ((cardinality(samples_us) = cardinality(baseline_us))),
    CONSTRAINT measurements_check2 CHECK (((outcome = 'correct'::public.outcome) <= ((cardinality(samples_us) > 0) AND (ratio IS NOT NULL)))),
    CONSTRAINT measurements_config_check CHECK ((config >= 0))
)
WITH (autovacuum_vacuum_insert_scale_factor='0.05', autovacuum_analyze_scale_factor='0.02');


--
-- Name: measurements_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.measurements ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.measurements_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: open_jobs; Type: VIEW; Schema: public; Owner: -
--

CREATE VIEW public.open_jobs AS
 WITH pace AS MATERIALIZED (
         SELECT job_usage.kernel,
            ((sum(job_usage.done_us))::double precision / (NULLIF(sum(job_usage.done_configs), (0)::numeric))::double precision) AS config_us
           FROM public.job_usage
          GROUP BY job_usage.kernel
        ), mean AS MATERIALIZED (
         SELECT ((sum(job_usage.done_us))::double precision / (NULLIF(sum(job_usage.done_configs), (0)::numeric))::double precision) AS config_us
           FROM public.job_usage
        )
 SELECT j.id,
    j.kernel,
    j.tag,
    j.run,
    COALESCE(j.submitted_by, ''::text) AS owner,
    j.state,
    j.created_at,
    j.device_class,
    j.priority,
    public.job_configs(j.*) AS configs,
    COALESCE(spent.measurements, (0)::bigint) AS measurements,
    COALESCE(spent.us, (0)::double precision) AS spent_us,
    (pace.config_us IS NOT NULL) AS is_known,
    GREATEST((0)::double precision, (LEAST(((public.job_configs(j.*))::double precision * COALESCE(pace.config_us, ( SELECT mean.config_us
           FROM mean), (j.config_us)::double precision)), ((1000.0)::double precision * (j.budget_device_ms)::double precision)) - COALESCE(spent.us, (0)::double precision))) AS left_us
   FROM ((public.jobs j
     LEFT JOIN pace ON ((pace.kernel = j.kernel)))
     CROSS JOIN LATERAL ( SELECT (sum((leases.device_us + leases.opening_us)))::double precision AS us,
            sum((((((leases.outcomes[1] + leases.outcomes[2]) + leases.outcomes[3]) + leases.outcomes[4]) + leases.outcomes[5]) + leases.outcomes[6])) AS measurements
           FROM public.leases
          WHERE ((leases.job_id = j.id) AND (j.state = 'running'::public.job_state))) spent)
  WHERE (j.state = ANY (ARRAY['queued'::public.job_state, 'running'::public.job_state]));


--
-- Name: overrides; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.overrides (
    id bigint NOT NULL,
    kind text NOT NULL,
    kernel text NOT NULL,
    key json,
    environment json NOT NULL,
    tag text,
    config json NOT NULL,
    reason text NOT NULL,
    until timestamp with time zone,
    made_by text NOT NULL,
    made_by_id bigint,
    made_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT overrides_kernel_check CHECK ((kernel <> ''::text)),
    CONSTRAINT overrides_kind_check CHECK ((kind = ANY (ARRAY['pin'::text, 'ban'::text]))),
    CONSTRAINT overrides_reason_check CHECK ((reason <> ''::text)),
    CONSTRAINT overrides_tag_check CHECK ((tag <> ''::text))
);


--
-- Name: overrides_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.overrides ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.overrides_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: owners; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.owners (
    id integer NOT NULL,
    name text NOT NULL,
    weight double precision DEFAULT 1 NOT NULL,
    device_seconds_per_day double precision,
    used_us double precision DEFAULT 0 NOT NULL,
    leases double precision DEFAULT 0 NOT NULL,
    used_at timestamp with time zone DEFAULT now() NOT NULL,
    day date DEFAULT ((now() AT TIME ZONE 'UTC'::text))::date NOT NULL,
    day_us double precision DEFAULT 0 NOT NULL,
    CONSTRAINT owners_device_seconds_per_day_check CHECK ((device_seconds_per_day > (0)::double precision)),
    CONSTRAINT owners_weight_check CHECK ((weight > (0)::double precision))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='200');


--
-- Name: owners_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.owners ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.owners_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: poison; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.poison (
    id bigint NOT NULL,
    scope text NOT NULL,
    subject bytea NOT NULL,
    device_class bytea NOT NULL,
    environment_id bigint NOT NULL,
    kernel bytea NOT NULL,
    build bytea,
    object bytea,
    config_values json,
    reason text NOT NULL,
    evidence json NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    settled_at timestamp with time zone,
    released_at timestamp with time zone,
    released_by text,
    released_by_id bigint,
    release_reason text,
    last_loss bigint,
    CONSTRAINT poison_check CHECK (((scope = 'object'::text) = (object IS NOT NULL))),
    CONSTRAINT poison_check1 CHECK (((scope = 'kernel'::text) = (config_values IS NULL))),
    CONSTRAINT poison_check2 CHECK (((released_at IS NOT NULL) = (last_loss IS NOT NULL))),
    CONSTRAINT poison_check3 CHECK (((released_at IS NOT NULL) = (release_reason IS NOT NULL))),
    CONSTRAINT poison_device_class_check CHECK ((octet_length(device_class) = 32)),
    CONSTRAINT poison_object_check CHECK ((octet_length(object) = 32)),
    CONSTRAINT poison_scope_check CHECK ((scope = ANY (ARRAY['config'::text, 'object'::text, 'kernel'::text]))),
    CONSTRAINT poison_subject_check CHECK ((octet_length(subject) = 32))
);


--
-- Name: poison_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.poison ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.poison_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: policy; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.policy (
    is_only boolean DEFAULT true NOT NULL,
    mode text DEFAULT 'off'::text NOT NULL,
    device_seconds_per_day double precision,
    configs_max bigint,
    tokens text[] DEFAULT '{}'::text[] NOT NULL,
    images text[] DEFAULT '{}'::text[] NOT NULL,
    channel text,
    require text DEFAULT 'agrees'::text NOT NULL,
    promote boolean DEFAULT false NOT NULL,
    set_at timestamp with time zone,
    set_by text,
    set_by_id bigint,
    CONSTRAINT policy_configs_max_check CHECK ((configs_max > 0)),
    CONSTRAINT policy_device_seconds_per_day_check CHECK ((device_seconds_per_day > (0)::double precision)),
    CONSTRAINT policy_is_only_check CHECK (is_only),
    CONSTRAINT policy_mode_check CHECK ((mode = ANY (ARRAY['off'::text, 'suggest'::text, 'automatic'::text]))),
    CONSTRAINT policy_require_check CHECK ((require = ANY (ARRAY['none'::text, 'agrees'::text, 'bitwise'::text, 'interpreted'::text])))
);


--
-- Name: proposals_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.proposals ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.proposals_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: release_fetchers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.release_fetchers (
    id bigint NOT NULL,
    release bytea NOT NULL,
    fetched_by_id bigint NOT NULL,
    fetched_by text NOT NULL,
    kind text NOT NULL,
    channel text NOT NULL,
    rule text NOT NULL,
    requests bigint NOT NULL,
    first_at timestamp with time zone NOT NULL,
    last_at timestamp with time zone NOT NULL,
    CONSTRAINT release_fetchers_kind_check CHECK ((kind = ANY (ARRAY['entry'::text, 'choices'::text, 'release'::text, 'files'::text]))),
    CONSTRAINT release_fetchers_requests_check CHECK ((requests > 0))
)
WITH (fillfactor='70');


--
-- Name: release_fetchers_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.release_fetchers ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.release_fetchers_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: release_fetches; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.release_fetches (
    release bytea NOT NULL,
    fetched_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');


--
-- Name: releases_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.releases ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.releases_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: remote_files; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.remote_files (
    id bigint NOT NULL,
    token_id bigint NOT NULL,
    image text NOT NULL,
    folder text NOT NULL,
    name text NOT NULL,
    is_group boolean NOT NULL,
    bytes bytea NOT NULL,
    size bigint GENERATED ALWAYS AS (octet_length(bytes)) STORED NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    used_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE ONLY public.remote_files ALTER COLUMN bytes SET STORAGE EXTERNAL;


--
-- Name: remote_files_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.remote_files ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.remote_files_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: remote_usage; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.remote_usage (
    token_id bigint NOT NULL,
    part integer NOT NULL,
    files bigint NOT NULL,
    bytes bigint NOT NULL
)
WITH (fillfactor='50');


--
-- Name: schema_migrations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.schema_migrations (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);


--
-- Name: secrets; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.secrets (
    name text NOT NULL,
    secret bytea NOT NULL,
    CONSTRAINT secrets_secret_check CHECK ((octet_length(secret) = 32))
);


--
-- Name: spaces; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.spaces (
    digest bytea NOT NULL,
    space text NOT NULL,
    CONSTRAINT spaces_digest_check CHECK ((octet_length(digest) = 32))
);


--
-- Name: tokens_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.tokens ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.tokens_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: measurements_0; Type: TABLE ATTACH; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements ATTACH PARTITION public.measurements_0 FOR VALUES FROM ('0') TO ('1001');


--
-- Data for Name: agents; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.agents (id, boot, name, version, drain_reason, enrolled_at, last_seen, token_id, machine, refused_at, refused_machine, refused_name, trusted_keys, drained_by, drained_by_id, removed_at, removed_by, removed_by_id) FROM stdin;
268aaab5d993e17ed47187b31a793b8e	b1	worker	0.1.0	\N	2026-11-29 00:03:11.247113+00	2026-11-29 00:03:11.247113+00	1	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N
905961172a7ea2ef19a21d6e064c410b	b1	gpu	0.1.0	\N	2026-11-29 00:03:17.207224+00	2026-11-29 00:03:17.207224+00	1	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N
f0f3cdf8fe67a25c172e18dd63c23d62	boot-half	half	0.1.0	\N	2026-11-29 00:03:18.624196+00	2026-11-29 00:03:18.624196+00	5	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N
17dd149e19afc0da89169693ccd62c48	boot-none	none	0.1.0	\N	2026-11-29 00:03:18.640495+00	2026-11-29 00:03:18.640495+00	5	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N
\.


--
-- Data for Name: audit; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.audit (id, at, token, token_id, role, peer, action, object, detail) FROM stdin;
1	2026-11-29 00:03:10.385864+00	(command line)	\N		\N	make-token	admin-28800058977468	{"role":"admin"}
2	2026-11-29 00:03:10.615458+00	(command line)	\N		\N	make-token	the-admin	{"role":"admin"}
3	2026-11-29 00:03:10.716899+00	(command line)	\N		\N	make-token	the-reader	{"role":"reader"}
4	2026-11-29 00:03:10.772898+00	(command line)	\N		\N	make-token	the-submitter	{"role":"submitter"}
5	2026-11-29 00:03:10.839397+00	(command line)	\N		\N	make-token	the-agent	{"role":"agent"}
6	2026-11-29 00:03:10.895782+00	(command line)	\N		\N	make-token	the-demand	{"role":"demand"}
7	2026-11-29 00:03:10.939706+00	(command line)	\N		\N	make-token	the-builder	{"role":"builder"}
8	2026-11-29 00:03:10.991542+00	(command line)	\N		\N	make-token	the-operator	{"role":"operator"}
9	2026-11-29 00:03:11.068873+00	(command line)	\N		\N	make-token	the-cache-writer	{"role":"cache-writer"}
10	2026-11-29 00:03:11.113503+00	(command line)	\N		\N	make-token	the-publisher	{"role":"publisher","channels":["stable"]}
11	2026-11-29 00:03:11.164852+00	(command line)	\N		\N	make-token	the-enrol	{"role":"enrol","expires_in_ms":315360000000,"uses":3}
12	2026-11-29 00:03:11.182253+00	admin-28800058977468	1	admin	127.0.0.1	put-blob	sha256:b4bdf8d761d016783d66be539b9955d9659e355a9e8ae83b2bd561e5c1458d21	{"size":47}
13	2026-11-29 00:03:11.20115+00	admin-28800058977468	1	admin	127.0.0.1	put-blob	sha256:d7f6b4f60e20eac74073fc65fc12ab2d8adcfaf95a02d2154c4f164026599d30	{"size":82}
14	2026-11-29 00:03:11.236134+00	admin-28800058977468	1	admin	127.0.0.1	register	sha256:6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	{"name":"test/leases"}
15	2026-11-29 00:03:11.247113+00	admin-28800058977468	1	admin	127.0.0.1	enrol	268aaab5d993e17ed47187b31a793b8e	{"name":"worker","devices":2}
16	2026-11-29 00:03:11.331364+00	(command line)	\N		\N	make-token	admin-28801021650491	{"role":"admin"}
17	2026-11-29 00:03:11.510345+00	admin-28800058977468	1	admin	127.0.0.1	submit	1	{"priority":0,"kernel":"sha256:6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef","tag":"default"}
18	2026-11-29 00:03:13.780255+00	admin-28800058977468	1	admin	127.0.0.1	cancel	1	{}
19	2026-11-29 00:03:13.801952+00	admin-28800058977468	1	admin	127.0.0.1	submit	2	{"priority":0,"kernel":"sha256:6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef","tag":"default"}
20	2026-11-29 00:03:14.837815+00	admin-28800058977468	1	admin	127.0.0.1	cancel	2	{}
21	2026-11-29 00:03:16.564064+00	(server)	\N		\N	poison	1	{"scope":"config","kernel":"sha256:6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef","reason":"4 leases were lost by 1 agents while it was being measured, repeatedly in each of 2 jobs"}
22	2026-11-29 00:03:16.627506+00	admin-28800058977468	1	admin	127.0.0.1	release-poison	1	{"reason":"the driver was updated"}
23	2026-11-29 00:03:16.644319+00	admin-28800058977468	1	admin	127.0.0.1	submit	3	{"priority":0,"kernel":"sha256:6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef","tag":"default"}
24	2026-11-29 00:03:16.706175+00	admin-28800058977468	1	admin	127.0.0.1	submit	4	{"priority":0,"kernel":"sha256:6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef","tag":"default"}
25	2026-11-29 00:03:16.718622+00	admin-28800058977468	1	admin	127.0.0.1	submit	5	{"priority":0,"kernel":"sha256:6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef","tag":"default"}
26	2026-11-29 00:03:16.720507+00	admin-28800058977468	1	admin	127.0.0.1	cancel	5	{}
27	2026-11-29 00:03:16.72778+00	admin-28800058977468	1	admin	127.0.0.1	release	sha256:2afcd415ffb6ded2ce22695b07a40c0875e80a1b1beaf3cd17404c91a7df65fa	{"tag":"default","regime":"cold","winners":1}
28	2026-11-29 00:03:16.787697+00	admin-28800058977468	1	admin	127.0.0.1	move	stable	{"release":"sha256:2afcd415ffb6ded2ce22695b07a40c0875e80a1b1beaf3cd17404c91a7df65fa","counter":1,"tag":"default","regime":"cold","environment":{"cpu":"gcc 1","gpu":"Test CPU","arch":"x86_64","partition":"","compute_units":4}}
29	2026-11-29 00:03:16.795255+00	admin-28800058977468	1	admin	127.0.0.1	import	dejavu	{"environment":{"cpu":"gcc 1","gpu":"Test CPU","arch":"x86_64","partition":"","compute_units":4},"tag":"default","added":1,"changed":0}
30	2026-11-29 00:03:16.874126+00	admin-28800058977468	1	admin	127.0.0.1	put-blob	sha256:521ff398ebcc0a318c52e0d165ce5397ffd426788746142c93b161f66e35c1a2	{"size":605}
31	2026-11-29 00:03:16.875853+00	admin-28800058977468	1	admin	127.0.0.1	put-blob	sha256:8da5cbc408d7b1e6adf09b11a906b4ab4a4b754ede1ffdc06e672eebc4e21523	{"size":168}
32	2026-11-29 00:03:16.877557+00	admin-28800058977468	1	admin	127.0.0.1	register	sha256:ba188d52254e976f0a8aec29590f13d7e3e9d84265fa141ace3444a334863114	{"name":"quick/c"}
33	2026-11-29 00:03:16.923494+00	admin-28800058977468	1	admin	127.0.0.1	sign-code	sha256:ba188d52254e976f0a8aec29590f13d7e3e9d84265fa141ace3444a334863114	{"key":"sha256:fc5e1bd8461015a947547e9fcbe6f1b58697e8e79d1b924e245efd8b6f01fddc"}
34	2026-11-29 00:03:16.928764+00	admin-28800058977468	1	admin	127.0.0.1	override	1	{"kind":"ban","kernel":"other","environment":{},"config":{"A":3},"reason":"NaN"}
35	2026-11-29 00:03:16.941564+00	admin-28800058977468	1	admin	127.0.0.1	declare	1	{"asked":{"rocm":"7.0"},"served":{"rocm":"6.4.1"},"reason":"same code"}
36	2026-11-29 00:03:16.94472+00	admin-28800058977468	1	admin	127.0.0.1	set-share	the-submitter	{"weight":2.0,"device_seconds_per_day":null}
37	2026-11-29 00:03:16.947426+00	admin-28800058977468	1	admin	127.0.0.1	drain	268aaab5d993e17ed47187b31a793b8e	{"device":"cpu1","reason":"dust"}
38	2026-11-29 00:03:16.94876+00	admin-28800058977468	1	admin	127.0.0.1	put-image	sha256:c8c4a21f5c457b17e2975d206f70817d2dab231c4cedd848b36e34e2d4a1c4ad	{}
39	2026-11-29 00:03:16.963792+00	admin-28800058977468	1	admin	127.0.0.1	retry	6	{"priority":0,"of":"4","kernel":"sha256:6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef","tag":"default"}
40	2026-11-29 00:03:17.059125+00	(command line)	\N		\N	make-token	program	{"role":"demand,reader"}
41	2026-11-29 00:03:17.124822+00	(command line)	\N		\N	make-token	builds	{"role":"builder"}
42	2026-11-29 00:03:17.18841+00	(command line)	\N		\N	make-token	gone	{"role":"operator"}
43	2026-11-29 00:03:17.207224+00	admin-28800058977468	1	admin	127.0.0.1	enrol	905961172a7ea2ef19a21d6e064c410b	{"name":"gpu","devices":1}
44	2026-11-29 00:03:17.209955+00	gone	15	operator	127.0.0.1	set-policy	automatic	{"mode":"automatic","device_seconds_per_day":3600.0,"configs_max":null,"tokens":["program"],"images":null,"channel":"stable","require":"none","promote":false}
45	2026-11-29 00:03:17.219803+00	admin-28800058977468	1	admin	127.0.0.1	put-blob	sha256:332244a84d1dbcfebe13e5b1d32961068bc248606d06e0d8138e72968fa2f131	{"size":11}
46	2026-11-29 00:03:17.222194+00	admin-28800058977468	1	admin	127.0.0.1	register	sha256:07e709eb27055ba72957b24acbae9d431578d88b15c696150700527081114a81	{"name":"module.f/fp32-0000"}
47	2026-11-29 00:03:17.223388+00	admin-28800058977468	1	admin	127.0.0.1	put-blob	sha256:5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b	{"size":4}
48	2026-11-29 00:03:17.225561+00	admin-28800058977468	1	admin	127.0.0.1	put-build	sha256:bbbdec48376882ed240046cf34d4b89dc22fb6afa0ae8f7676fc8ab1580668ca	{"kernel":"sha256:07e709eb27055ba72957b24acbae9d431578d88b15c696150700527081114a81","arch":"gfx942"}
49	2026-11-29 00:03:17.338231+00	(server)	\N		\N	submit	7	{"priority":-50,"kernel":"sha256:07e709eb27055ba72957b24acbae9d431578d88b15c696150700527081114a81","tag":"default"}
50	2026-11-29 00:03:18.56862+00	(server)	\N		\N	release	sha256:001f840ee8c5466bc64357ec130eceb6f72c6f3029211db9fd74cca699a0b4bf	{"tag":"default","regime":"cold","winners":1}
51	2026-11-29 00:03:18.570617+00	(server)	\N		\N	propose	1	{"channel":"stable","release":"sha256:001f840ee8c5466bc64357ec130eceb6f72c6f3029211db9fd74cca699a0b4bf","images":["sha256:1111111111111111111111111111111111111111111111111111111111111111"],"winners":1}
52	2026-11-29 00:03:18.598481+00	gone	15	operator	127.0.0.1	set-policy	suggest	{"mode":"suggest","device_seconds_per_day":3600.0,"configs_max":null,"tokens":["program"],"images":null,"channel":"stable","require":"none","promote":false}
57	2026-11-29 00:03:18.648851+00	admin-28800058977468	1	admin	127.0.0.1	submit	9	{"priority":-5,"kernel":"sha256:6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef","tag":"default"}
53	2026-11-29 00:03:18.616448+00	admin-28800058977468	1	admin	127.0.0.1	revoke-token	gone	{}
54	2026-11-29 00:03:18.620549+00	admin-28800058977468	1	admin	127.0.0.1	submit	8	{"priority":0,"kernel":"sha256:6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef","tag":"default"}
56	2026-11-29 00:03:18.640495+00	the-agent	5	agent	127.0.0.1	enrol	17dd149e19afc0da89169693ccd62c48	{"name":"none","devices":1}
55	2026-11-29 00:03:18.624196+00	the-agent	5	agent	127.0.0.1	enrol	f0f3cdf8fe67a25c172e18dd63c23d62	{"name":"half","devices":1}
\.


--
-- Data for Name: blob_chunks; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.blob_chunks (digest, ordinal, bytes) FROM stdin;
\\xb4bdf8d761d016783d66be539b9955d9659e355a9e8ae83b2bd561e5c1458d21	0	\\x28b52ffd202f790100766f6964206628666c6f6174202a792c206c6f6e67206c6f6e67206e29207b20795b6e202d20315d203d20313b207d
\\xd7f6b4f60e20eac74073fc65fc12ab2d8adcfaf95a02d2154c4f164026599d30	0	\\x28b52ffd20523d020032440f1880c51a0371b4c5247d8f8d6f18d88ac81b27c2a2eb602e34818fb4717172fc9cd3c83a715b1d7ccb0d58d0511c7e6a938dda8d6e064f29ec950b5c2602003af7475b96
\\x521ff398ebcc0a318c52e0d165ce5397ffd426788746142c93b161f66e35c1a2	0	\\x28b52ffd605d017d0c00069c502510afa60d86d8fd723c9482618cbeb7766f44b60ca870fbbf8783c206c7c11f1100a0805201430040004800f79e322761745cfd0775df70f5de7953359f74bee91a52c8e7fc25255de8a80b87a066fadc8c7d86cd15bf6f515cd290da33b2ec3b2428302834fca9f8c00f5edd8904b7f8cc9d126cb8ae48e183534ae75c7dcd47c84edfab0d1bd9b5c370004287615c0e87701e351774ec15672ca7d875ddf3456fbda18c1a525fed2fff61175d166f2bfd8dc51dfaae1014b4e69f8a37eb427f2ae77d3b490d092833138f72a9a6415890d68c9a29c72833419a004dc43904299c12c3163220b8b4b76cc4ef91ded3104658f67ac716cd4573f13711e7181d7b354d878df9305fd0e19dc8270e46d59621635c22919cc168e0947dd352af54185fa53281c8878a3b10f950bd713c1ef9899ef2ccc7833211f8c1fb1083edadd9081c00575b5174de1e201a81138f75b809d7b2dae1aa8134247269be7e21af66323ca0c11c0ec6d3aad008f66ae902c6fa9d6e9f5f470d37c4b00ba7ebe2b02635f7772e5859c674579901
\\x8da5cbc408d7b1e6adf09b11a906b4ab4a4b754ede1ffdc06e672eebc4e21523	0	\\x28b52ffd20a825040072481c1e508b75a3d4a8348082d10c19f481b89944bad14c8fe266194a301364e803fa50268190570fb0e52cc55ee95786d74c9a830de457c713fe923d3184bea67a3ff0455fef46306876483fcdfc3e45844dd5b060cdaef544f8b6f820760055d499fcf2c2e72378476e63e7bc7919fb0e574a0500ac2018965c9922ee0c8145b87014
\\x332244a84d1dbcfebe13e5b1d32961068bc248606d06e0d8138e72968fa2f131	0	\\x28b52ffd200b59000023206d6f64756c653a660a
\\x5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b	0	\\x28b52ffd2004210000636f6465
\.


--
-- Data for Name: blob_usage; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.blob_usage (token_id, part, bytes) FROM stdin;
1	11	4701
1	8	8407
1	10	4107
1	9	8278
\.


--
-- Data for Name: blobs; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.blobs (digest, size, created_at, put_by, put_by_id) FROM stdin;
\\xb4bdf8d761d016783d66be539b9955d9659e355a9e8ae83b2bd561e5c1458d21	47	2026-11-29 00:03:11.182253+00	admin-28800058977468	1
\\xd7f6b4f60e20eac74073fc65fc12ab2d8adcfaf95a02d2154c4f164026599d30	82	2026-11-29 00:03:11.20115+00	admin-28800058977468	1
\\x521ff398ebcc0a318c52e0d165ce5397ffd426788746142c93b161f66e35c1a2	605	2026-11-29 00:03:16.874126+00	admin-28800058977468	1
\\x8da5cbc408d7b1e6adf09b11a906b4ab4a4b754ede1ffdc06e672eebc4e21523	168	2026-11-29 00:03:16.875853+00	admin-28800058977468	1
\\x332244a84d1dbcfebe13e5b1d32961068bc248606d06e0d8138e72968fa2f131	11	2026-11-29 00:03:17.219803+00	admin-28800058977468	1
\\x5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b	4	2026-11-29 00:03:17.223388+00	admin-28800058977468	1
\.


--
-- Data for Name: build_caches; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.build_caches (folder, build, files) FROM stdin;
\.


--
-- Data for Name: build_files; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.build_files (build, digest) FROM stdin;
\\xbbbdec48376882ed240046cf34d4b89dc22fb6afa0ae8f7676fc8ab1580668ca	\\x5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b
\.


--
-- Data for Name: builds; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.builds (id, digest, kernel, arch, triton, torch, rocm, variants, build, created_at, head, made_by, made_by_id, closure) FROM stdin;
1	\\xbbbdec48376882ed240046cf34d4b89dc22fb6afa0ae8f7676fc8ab1580668ca	\\x07e709eb27055ba72957b24acbae9d431578d88b15c696150700527081114a81	gfx942	3.6.0	\N	\N	1	{"arch":"gfx942","kernel":"sha256:07e709eb27055ba72957b24acbae9d431578d88b15c696150700527081114a81","toolchain":{"triton":"3.6.0"},"variants":[{"case":{"arguments":{"n":{"value":64},"y":{"access":"readwrite","elements":64,"fill":"zeros"}}},"constexprs":{},"failed":[{"config":{"MODE":9},"error":"out of resource"}],"key":{"n":64},"objects":[{"config":{"MODE":0},"digest":"sha256:5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b","grid":[1,1,1],"metadata":{"name":"f","num_warps":4,"shared":0}},{"config":{"MODE":1},"digest":"sha256:5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b","grid":[1,1,1],"metadata":{"name":"f","num_warps":4,"shared":0}},{"config":{"MODE":2},"digest":"sha256:5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b","grid":[1,1,1],"metadata":{"name":"f","num_warps":4,"shared":0}}],"signature":{"n":"i64","y":"*fp32"}}],"warp_size":64}	2026-11-29 00:03:17.225561+00	{"arch":"gfx942","kernel":"sha256:07e709eb27055ba72957b24acbae9d431578d88b15c696150700527081114a81","toolchain":{"triton":"3.6.0"},"variants":[{"key":{"n":64}}],"warp_size":64}	admin-28800058977468	1	\N
\.


--
-- Data for Name: captured_functions; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.captured_functions (id, token_id, closure, name, document, seen_at) FROM stdin;
1	13	\\xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa	package.module:f	{"autotune":null,"closure":"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","globals":[],"name":"package.module:f","parts":[{"line":1,"module":"package.module","qualname":"f","text":"def f(): pass\\u000a"}],"version":1}	2026-11-29 00:03:18.600883+00
\.


--
-- Data for Name: captured_launches; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.captured_launches (id, function_id, token_id, digest, key, key_digest, arch, triton, document, created_at, seen_at, seen, epoch, leased_until, leased_by, build, kernel, refused, environment, image, space_digest, configs, job_id, not_queued, decided_at) FROM stdin;
1	1	13	\\x830025c01a4dff48d64c6622b9963c92b3f979a2d59b4563b55618b404e4aebc	{"n":64}	\\x59463b5b734b8fd57991beff973f24278cbf0a77b2d81edaeb9dd2b4fa0e1d2c	gfx942	3.6.0	{"arguments":[],"closure":"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","configs":[],"environment":{"arch":"gfx942","compute_units":304,"gpu":"AMD Instinct MI300X","partition":"SPX/NPS1","rocm":"6.4.1","torch":"2.9.0","triton":"3.6.0"},"image":"sha256:1111111111111111111111111111111111111111111111111111111111111111","key":["64","'torch.float16'"],"key_names":["n"],"key_values":[64],"refused":[],"triton":"3.6.0","version":1}	2026-11-29 00:03:17.214893+00	2026-11-29 00:03:17.214893+00	1	1	\N	builds	\\xbbbdec48376882ed240046cf34d4b89dc22fb6afa0ae8f7676fc8ab1580668ca	\\x07e709eb27055ba72957b24acbae9d431578d88b15c696150700527081114a81	\N	{"rocm":"6.4.1","torch":"2.9.0","triton":"3.6.0","gpu":"AMD Instinct MI300X","arch":"gfx942","partition":"SPX/NPS1","compute_units":304}	sha256:1111111111111111111111111111111111111111111111111111111111111111	\\xbe47abb74a97858ce5bd98580da02448d4ee4b5998b55d309bb056d26f72895e	3	7	\N	2026-11-29 00:03:17.377675+00
2	1	13	\\xc86a36a2b5bc7f7848cf5d535c71cfa4165eb8929d3ae5b104e8b8a3f3f3c39f	{"n":128}	\\x6cd815846ae62bfd2f7ab326af11312a37b37532f472f2ab2ad67dff857362b9	gfx942	3.6.0	{"arguments":[],"closure":"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","configs":[],"environment":{"arch":"gfx942","compute_units":304,"gpu":"AMD Instinct MI300X","partition":"SPX/NPS1","rocm":"6.4.1","torch":"2.9.0","triton":"3.6.0"},"image":"sha256:1111111111111111111111111111111111111111111111111111111111111111","key":["128","'torch.float16'"],"key_names":["n"],"key_values":[128],"refused":[],"triton":"3.6.0","version":1}	2026-11-29 00:03:18.602277+00	2026-11-29 00:03:18.602277+00	1	0	\N	\N	\N	\N	\N	{"rocm":"6.4.1","torch":"2.9.0","triton":"3.6.0","gpu":"AMD Instinct MI300X","arch":"gfx942","partition":"SPX/NPS1","compute_units":304}	sha256:1111111111111111111111111111111111111111111111111111111111111111	\N	\N	\N	\N	\N
\.


--
-- Data for Name: channel_entries; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.channel_entries (name, environment_digest, tag, counter, release, moved_by, moved_at, expires_at, regime, moved_by_id) FROM stdin;
stable	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	default	1	\\x2afcd415ffb6ded2ce22695b07a40c0875e80a1b1beaf3cd17404c91a7df65fa	admin-28800058977468	2026-11-29 00:03:16.787697+00	\N	cold	1
\.


--
-- Data for Name: channel_signatures; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.channel_signatures (name, environment_digest, tag, counter, key, signature, added_by, added_at, regime, added_by_id) FROM stdin;
stable	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	default	1	\\xb289b42e950404dc67de383eed6435cd1361237fb060146057982340533429be	nBrOQ3eIzih5130Z9iU3Oiq+MujUJ9/CF84YM4xrOvdy+7tUvEcKtVP21kfxdpHb1DsErBkDNw1iUUPO7IqnAg==	admin-28800058977468	2026-11-29 00:03:16.787697+00	cold	1
\.


--
-- Data for Name: channels; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.channels (id, name, environment_digest, tag, release, counter, updated_at, signings, regime) FROM stdin;
1	stable	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	default	\\x2afcd415ffb6ded2ce22695b07a40c0875e80a1b1beaf3cd17404c91a7df65fa	1	2026-11-29 00:03:16.787697+00	0	cold
\.


--
-- Data for Name: choices_signatures; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.choices_signatures (release, key, choices, signature, signed_at) FROM stdin;
\.


--
-- Data for Name: code_signatures; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.code_signatures (digest, key, signature, expires_at, signed_at, added_by, added_by_id) FROM stdin;
\\xba188d52254e976f0a8aec29590f13d7e3e9d84265fa141ace3444a334863114	\\xfc5e1bd8461015a947547e9fcbe6f1b58697e8e79d1b924e245efd8b6f01fddc	VFXprZ2C417etr0golsQFY0dnkOBcUJV6AGBmWnsIT/EUnLJ+aNclsc4NOHLLkzstv4TYhOurnIsrEOi7NMwBA==	2036-11-26 00:03:16+00	2026-11-29 00:03:16.923494+00	admin-28800058977468	1
\.


--
-- Data for Name: collection_due; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.collection_due (at, is_only) FROM stdin;
2026-11-29 00:03:10.096285+00	t
\.


--
-- Data for Name: compatibilities; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.compatibilities (id, asked, served, reason, made_by, made_at, made_by_id) FROM stdin;
1	{"rocm":"7.0"}	{"rocm":"6.4.1"}	same code	admin-28800058977468	2026-11-29 00:03:16.941564+00	1
\.


--
-- Data for Name: demand; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.demand (id, kernel, key_digest, key, environment_digest, environment, tag, hits, misses, tuning_ms, kernel_ms, first_at, last_at, job_id, refused, decided_at, regime, last_by, last_by_id, policy_token, policy_image) FROM stdin;
1	\\x07e709eb27055ba72957b24acbae9d431578d88b15c696150700527081114a81	\\xbfc6058309f0b0f1bfa21fdb88d1a934dcce8775f03e0158b1a2fecb73e53e21	{"n":512}	\\x98502f37ba1a0115b467d4b8c719133bb9b05c8f46eb5542bfee6e2459a53c78	{"arch":"gfx942","compute_units":304,"gpu":"AMD Instinct MI300X","partition":"SPX/NPS1","rocm":"6.4.1","torch":"2.9.0","triton":"3.6.0"}	default	1	3	50	\N	2026-11-29 00:03:18.606558+00	2026-11-29 00:03:18.606558+00	\N	\N	\N	cold	program	13	program	sha256:1111111111111111111111111111111111111111111111111111111111111111
\.


--
-- Data for Name: device_baselines; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.device_baselines (agent, device, subject, at, lease_id, epoch, median_us) FROM stdin;
268aaab5d993e17ed47187b31a793b8e	cpu0	\\x1b26d6bf61f01410fd0d179c9f590fbaa4180f8157a3a942cb4761d264caae3c	2026-11-29 00:03:16.659541+00	3	1	100
268aaab5d993e17ed47187b31a793b8e	cpu0	\\x83cfbedd16d3aea3a56a39d98914aeb2cc6d279f07e7115f1be6d7e6f4efc3bf	2026-11-29 00:03:16.673228+00	4	1	100
268aaab5d993e17ed47187b31a793b8e	cpu0	\\x83cfbedd16d3aea3a56a39d98914aeb2cc6d279f07e7115f1be6d7e6f4efc3bf	2026-11-29 00:03:16.68347+00	5	1	100
268aaab5d993e17ed47187b31a793b8e	cpu0	\\x83cfbedd16d3aea3a56a39d98914aeb2cc6d279f07e7115f1be6d7e6f4efc3bf	2026-11-29 00:03:16.68676+00	6	1	100
268aaab5d993e17ed47187b31a793b8e	cpu0	\\x65507763e6eb28049568ddad666842936254bba4f7816483025ac042580d4198	2026-11-29 00:03:16.97309+00	9	1	100
268aaab5d993e17ed47187b31a793b8e	cpu0	\\xcd49fd3a754e9194ffc5c5160312d9fcf83732ce30d9f00ecef1d2bc5cc40a92	2026-11-29 00:03:16.985077+00	10	1	100
268aaab5d993e17ed47187b31a793b8e	cpu0	\\xcd49fd3a754e9194ffc5c5160312d9fcf83732ce30d9f00ecef1d2bc5cc40a92	2026-11-29 00:03:17.005974+00	11	1	100
268aaab5d993e17ed47187b31a793b8e	cpu0	\\xcd49fd3a754e9194ffc5c5160312d9fcf83732ce30d9f00ecef1d2bc5cc40a92	2026-11-29 00:03:17.013113+00	12	1	100
905961172a7ea2ef19a21d6e064c410b	cpu0	\\x496042693e4f052bdaea62924b9ea4d7b14b6714727fa0f58d9b8c00b9d0ce74	2026-11-29 00:03:17.410774+00	13	1	100
905961172a7ea2ef19a21d6e064c410b	cpu0	\\xbd80682b0802262854a9901af959f3ba0cda27d8047ce765b2ec05c21c20db1d	2026-11-29 00:03:17.424228+00	14	1	100
905961172a7ea2ef19a21d6e064c410b	cpu0	\\xbd80682b0802262854a9901af959f3ba0cda27d8047ce765b2ec05c21c20db1d	2026-11-29 00:03:17.428353+00	15	1	100
905961172a7ea2ef19a21d6e064c410b	cpu0	\\xbd80682b0802262854a9901af959f3ba0cda27d8047ce765b2ec05c21c20db1d	2026-11-29 00:03:17.435251+00	16	1	100
\.


--
-- Data for Name: devices; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.devices (agent, device, backend, environment_id, facts, drain_reason, suspect_since, history_since, drained_by, drained_by_id) FROM stdin;
268aaab5d993e17ed47187b31a793b8e	cpu0	cpu	1	{}	\N	\N	\N	\N	\N
268aaab5d993e17ed47187b31a793b8e	cpu1	cpu	1	{}	dust	\N	\N	admin-28800058977468	1
905961172a7ea2ef19a21d6e064c410b	cpu0	cpu	3	{}	\N	\N	\N	\N	\N
f0f3cdf8fe67a25c172e18dd63c23d62	cpu0	cpu	1	{}	\N	\N	\N	\N	\N
17dd149e19afc0da89169693ccd62c48	cpu0	cpu	1	{}	\N	\N	\N	\N	\N
\.


--
-- Data for Name: environments; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.environments (id, digest, hardware_digest, identity) FROM stdin;
1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	{"arch":"x86_64","compute_units":4,"cpu":"gcc 1","gpu":"Test CPU","partition":""}
3	\\x80d97627d7f318d1f82af41f5663c72605c9e6c83a776db763ade968ec53581e	\\x80d97627d7f318d1f82af41f5663c72605c9e6c83a776db763ade968ec53581e	{"arch":"gfx942","compute_units":304,"gpu":"AMD Instinct MI300X","partition":"SPX/NPS1","rocm":"6.4.1"}
4	\\x9c40fac236b9469ea70ca274a4906bba358dcaf465dbc936b8643c1924010e3e	\\x80d97627d7f318d1f82af41f5663c72605c9e6c83a776db763ade968ec53581e	{"arch":"gfx942","compute_units":304,"gpu":"AMD Instinct MI300X","partition":"SPX/NPS1","rocm":"6.4.1","triton":"3.6.0"}
\.


--
-- Data for Name: evidence; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.evidence (id, environment_digest, environment, tag, regime, function, key_digest, token_id, node, name, key, near, configs, ms, tuning_ms, last_at) FROM stdin;
1	\\x98502f37ba1a0115b467d4b8c719133bb9b05c8f46eb5542bfee6e2459a53c78	{"arch":"gfx942","compute_units":304,"gpu":"AMD Instinct MI300X","partition":"SPX/NPS1","rocm":"6.4.1","torch":"2.9.0","triton":"3.6.0"}	default	cold	\\x252f10c83610ebca1a059c0bae8255eba2f95be4d1d7bcfa89d7248a82d9f111	\\x5f035bae856e785c882b28d1592fbe89ef52df5ca3c87cf632e229d0da48892a	13	a	own	["64"]	[{"A":1}]	4	0.5	100	2026-11-29 00:03:18.610205+00
\.


--
-- Data for Name: images; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.images (digest, identity, put_by, put_at, put_by_id) FROM stdin;
\\xc8c4a21f5c457b17e2975d206f70817d2dab231c4cedd848b36e34e2d4a1c4ad	{"dejavu":null,"devices":null,"functions":[],"gpu":null,"moe_device_name":null,"torch":"2.9.0","triton":{"backend_hash":"b","key":"k","version":"3.6.0"},"tunableop":null,"variables":{},"version":1}	admin-28800058977468	2026-11-29 00:03:16.94876+00	1
\.


--
-- Data for Name: imports; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.imports (id, kernel, key_digest, key, environment_digest, environment, tag, config, ms, provenance, format, imported_by, imported_at, imported_by_id) FROM stdin;
1	\\xe0c909bdd6be11aa4d539e3b4c8c50d00a2213ae213c64ec5008e5bbea7c467b	\\x00e1a00c021ae3eec22ee6858d8672c2d9c10f30918f8b6a6c57e7e5f8c48e4b	{"n":4096}	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	{"arch":"x86_64","compute_units":4,"cpu":"gcc 1","gpu":"Test CPU","partition":""}	default	{"B":1}	{0.2}	{}	dejavu	admin-28800058977468	2026-11-29 00:03:16.795255+00	1
\.


--
-- Data for Name: job_events; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.job_events (job_id, event, kind, at, detail) FROM stdin;
1	1	queued	2026-11-29 00:03:11.510345+00	{}
1	2	running	2026-11-29 00:03:11.541097+00	{}
1	3	lease_lost	2026-11-29 00:03:12.668336+00	{"lease" : "1", "epoch" : 1, "agent" : "268aaab5d993e17ed47187b31a793b8e", "device" : "cpu0", "config" : 1}
1	4	lease_lost	2026-11-29 00:03:13.725044+00	{"lease" : "1", "epoch" : 2, "agent" : "268aaab5d993e17ed47187b31a793b8e", "device" : "cpu0", "config" : 1}
1	5	poisoned	2026-11-29 00:03:13.725044+00	{"lease" : "1", "config" : 1, "configs" : 1, "detail" : "poisoned: 2 leases were lost while it was being measured, on 1 device(s)", "poison" : null}
1	6	cancelled	2026-11-29 00:03:13.780255+00	{}
2	1	queued	2026-11-29 00:03:13.801952+00	{}
2	2	running	2026-11-29 00:03:13.814475+00	{}
2	3	lease_lost	2026-11-29 00:03:14.248819+00	{"lease" : "2", "epoch" : 1, "agent" : "268aaab5d993e17ed47187b31a793b8e", "device" : "cpu0", "config" : 1}
2	4	lease_lost	2026-11-29 00:03:14.76766+00	{"lease" : "2", "epoch" : 2, "agent" : "268aaab5d993e17ed47187b31a793b8e", "device" : "cpu0", "config" : 1}
2	5	poisoned	2026-11-29 00:03:14.76766+00	{"lease" : "2", "config" : 1, "configs" : 1, "detail" : "poisoned: 2 leases were lost while it was being measured, on 1 device(s)", "poison" : null}
2	6	cancelled	2026-11-29 00:03:14.837815+00	{}
3	1	queued	2026-11-29 00:03:16.644319+00	{}
3	2	running	2026-11-29 00:03:16.654061+00	{}
3	3	stage	2026-11-29 00:03:16.669448+00	{"configs":[0,1,2],"processes":3,"stage":"final","round":0}
3	4	done	2026-11-29 00:03:16.69021+00	{"winner":0}
4	1	queued	2026-11-29 00:03:16.706175+00	{}
4	2	running	2026-11-29 00:03:16.708396+00	{}
4	3	failed	2026-11-29 00:03:16.713965+00	{"reason":"none of 3 configs was measured correctly (compile 3); one of them: because"}
5	1	queued	2026-11-29 00:03:16.718622+00	{}
5	2	cancelled	2026-11-29 00:03:16.720507+00	{}
4	4	retried	2026-11-29 00:03:16.963792+00	{"run" : "retried-4"}
6	1	queued	2026-11-29 00:03:16.963792+00	{}
6	2	running	2026-11-29 00:03:16.970694+00	{}
6	3	stage	2026-11-29 00:03:16.975068+00	{"configs":[0,1,2],"processes":3,"stage":"final","round":0}
6	4	done	2026-11-29 00:03:17.01618+00	{"winner":0}
7	1	queued	2026-11-29 00:03:17.338231+00	{}
7	2	running	2026-11-29 00:03:17.407184+00	{}
7	3	stage	2026-11-29 00:03:17.415402+00	{"configs":[0,1],"processes":3,"stage":"final","round":0}
7	4	done	2026-11-29 00:03:17.437648+00	{"winner":1}
8	1	queued	2026-11-29 00:03:18.620549+00	{}
8	2	running	2026-11-29 00:03:18.628814+00	{}
9	1	queued	2026-11-29 00:03:18.648851+00	{}
\.


--
-- Data for Name: job_usage; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.job_usage (day, kernel, tag, run, owner, part, done, failed, cancelled, configs, measurements, device_us, done_configs, done_us, first_at, last_at) FROM stdin;
2026-11-29	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	default	lost	admin-28800058977468	8	0	0	1	3	1	0	0	0	2026-11-29 00:03:11.510345+00	2026-11-29 00:03:13.780255+00
2026-11-29	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	default	lost	admin-28800058977468	10	0	0	1	3	1	0	0	0	2026-11-29 00:03:13.801952+00	2026-11-29 00:03:14.837815+00
2026-11-29	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	default		admin-28800058977468	11	1	1	0	6	15	450000	3	360000	2026-11-29 00:03:16.644319+00	2026-11-29 00:03:16.713965+00
2026-11-29	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	default		admin-28800058977468	10	0	0	1	3	0	0	0	0	2026-11-29 00:03:16.718622+00	2026-11-29 00:03:16.720507+00
2026-11-29	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	default	retried-4	admin-28800058977468	8	0	1	0	3	3	90000	0	0	2026-11-29 00:03:16.706175+00	2026-11-29 00:03:16.713965+00
2026-11-29	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	default		admin-28800058977468	8	1	-1	0	0	9	270000	3	360000	2026-11-29 00:03:16.706175+00	2026-11-29 00:03:17.01618+00
2026-11-29	\\x07e709eb27055ba72957b24acbae9d431578d88b15c696150700527081114a81	default	policy	(server)	11	1	0	0	3	9	9000	3	9000	2026-11-29 00:03:17.338231+00	2026-11-29 00:03:17.437648+00
\.


--
-- Data for Name: jobs; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.jobs (id, kernel, key, key_digest, space_digest, environment_id, tag, run, state, stage, round, priority, budget_device_ms, baseline, seed, configs, runner, build, device_class, events, reason, created_at, finished_at, baseline_from, default_config, config_us, best_ratio, likely, search_strategy, search_trials, final_devices, regime, purpose, is_plain, submitted_by, submitted_by_id, cancelled_by, cancelled_by_id, disagreeing, owner_id, retry_of, retried_at) FROM stdin;
1	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	{"n":80}	\\xe68cf62afd204254e61c3839311114d270bb3ee7216e8303bdf2a5ee4d610ecc	\\x03a3f8fd927871e357c3a924962fc9df3c16e369d7bd900505ac8500102ab654	1	default	lost	cancelled	screen	0	0	\N	0	63678336937238	3	build	\N	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	6	\N	2026-11-29 00:03:11.510345+00	2026-11-29 00:03:13.780255+00	first	\N	30000	\N	{}	\N	\N	1	cold	tune	t	admin-28800058977468	1	admin-28800058977468	1	\N	1	\N	\N
2	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	{"n":81}	\\x77a8c66063683fd561daed561cdfe47d392cde7267cd49387e17c13fc1ac13fe	\\x207c48493ad1ca407f459168c3717f430ce72b2f79fd0ad8e00cdb8289b38e6e	1	default	lost	cancelled	screen	0	0	\N	0	140664503665088	3	build	\N	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	6	\N	2026-11-29 00:03:13.801952+00	2026-11-29 00:03:14.837815+00	first	\N	30000	\N	{}	\N	\N	1	cold	tune	t	admin-28800058977468	1	admin-28800058977468	1	\N	1	\N	\N
3	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	{"n":64}	\\x59463b5b734b8fd57991beff973f24278cbf0a77b2d81edaeb9dd2b4fa0e1d2c	\\x03a3f8fd927871e357c3a924962fc9df3c16e369d7bd900505ac8500102ab654	1	default		done	final	0	0	\N	0	117677545040	3	build	\N	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	4	\N	2026-11-29 00:03:16.644319+00	2026-11-29 00:03:16.69021+00	first	\N	30000	1	{}	\N	\N	1	cold	tune	t	admin-28800058977468	1	\N	\N	\N	1	\N	\N
5	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	{"n":66}	\\x2ac775eae1a6ead6a8577b3424f81ac76b4e1cf36cb97f04c4718cc5c89cfb95	\\x03a3f8fd927871e357c3a924962fc9df3c16e369d7bd900505ac8500102ab654	1	default		cancelled	screen	0	0	\N	0	103018434536556	3	build	\N	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	2	\N	2026-11-29 00:03:16.718622+00	2026-11-29 00:03:16.720507+00	first	\N	30000	\N	{}	\N	\N	1	cold	tune	t	admin-28800058977468	1	admin-28800058977468	1	\N	1	\N	\N
4	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	{"n":65}	\\x2c051cdbb8e8d2603fbb2b58b45423553857f91aaabadc4b104ed0da6562d162	\\x03a3f8fd927871e357c3a924962fc9df3c16e369d7bd900505ac8500102ab654	1	default	retried-4	failed	screen	0	0	\N	0	236260140403047	3	build	\N	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	4	none of 3 configs was measured correctly (compile 3); one of them: because	2026-11-29 00:03:16.706175+00	2026-11-29 00:03:16.713965+00	first	\N	30000	\N	{0}	\N	\N	1	cold	tune	t	admin-28800058977468	1	\N	\N	\N	1	\N	2026-11-29 00:03:16.963792+00
6	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	{"n":65}	\\x2c051cdbb8e8d2603fbb2b58b45423553857f91aaabadc4b104ed0da6562d162	\\x03a3f8fd927871e357c3a924962fc9df3c16e369d7bd900505ac8500102ab654	1	default		done	final	0	0	\N	0	236260140403047	3	build	\N	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	4	\N	2026-11-29 00:03:16.963792+00	2026-11-29 00:03:17.01618+00	first	\N	30000	1	{0}	\N	\N	1	cold	tune	t	admin-28800058977468	1	\N	\N	\N	1	4	\N
7	\\x07e709eb27055ba72957b24acbae9d431578d88b15c696150700527081114a81	{"n":64}	\\x59463b5b734b8fd57991beff973f24278cbf0a77b2d81edaeb9dd2b4fa0e1d2c	\\xbe47abb74a97858ce5bd98580da02448d4ee4b5998b55d309bb056d26f72895e	4	default	policy	done	final	0	-50	\N	0	167310798129029	3	build	\\xbbbdec48376882ed240046cf34d4b89dc22fb6afa0ae8f7676fc8ab1580668ca	\\x80d97627d7f318d1f82af41f5663c72605c9e6c83a776db763ade968ec53581e	4	\N	2026-11-29 00:03:17.338231+00	2026-11-29 00:03:17.437648+00	default	0	30000	0.5	{}	\N	\N	1	cold	tune	t	(server)	\N	\N	\N	\N	3	\N	\N
9	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	{"n":68}	\\x1386c1e89cb123869c7c0e912fc06e2deae8283927bbb8e8cddbb751f3105157	\\x03a3f8fd927871e357c3a924962fc9df3c16e369d7bd900505ac8500102ab654	1	default		queued	screen	0	-5	60000	0	177638861867000	3	build	\N	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	1	\N	2026-11-29 00:03:18.648851+00	\N	first	\N	30000	\N	{}	\N	\N	1	cold	tune	t	admin-28800058977468	1	\N	\N	\N	1	\N	\N
8	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	{"n":67}	\\xb7ec4606ebc4609ba1dbed05c8ddd34443537d6e9977e16fd70c8db47b495ada	\\x915056989b739b7244281c1cdb404d91d0161dd0f48a0b8532b9ed66b736c350	1	default		running	screen	0	0	\N	0	84391552338848	24	build	\N	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	2	\N	2026-11-29 00:03:18.620549+00	\N	first	\N	30000	1	{1}	\N	\N	1	cold	tune	t	admin-28800058977468	1	\N	\N	\N	1	\N	\N
\.


--
-- Data for Name: kernel_files; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.kernel_files (kernel, digest) FROM stdin;
\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	\\xb4bdf8d761d016783d66be539b9955d9659e355a9e8ae83b2bd561e5c1458d21
\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	\\xd7f6b4f60e20eac74073fc65fc12ab2d8adcfaf95a02d2154c4f164026599d30
\\xba188d52254e976f0a8aec29590f13d7e3e9d84265fa141ace3444a334863114	\\x521ff398ebcc0a318c52e0d165ce5397ffd426788746142c93b161f66e35c1a2
\\xba188d52254e976f0a8aec29590f13d7e3e9d84265fa141ace3444a334863114	\\x8da5cbc408d7b1e6adf09b11a906b4ab4a4b754ede1ffdc06e672eebc4e21523
\\x07e709eb27055ba72957b24acbae9d431578d88b15c696150700527081114a81	\\x332244a84d1dbcfebe13e5b1d32961068bc248606d06e0d8138e72968fa2f131
\.


--
-- Data for Name: kernels; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.kernels (id, hash, name, language, manifest, created_at, made_by, made_by_id) FROM stdin;
1	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	test/leases	c	{"name":"test/leases","language":"c","entry":"f","sources":[{"path":"f.c","digest":"sha256:b4bdf8d761d016783d66be539b9955d9659e355a9e8ae83b2bd561e5c1458d21"}],"key":["n"],"arguments":[{"name":"y","dtype":"float32","shape":["n"],"access":"write"},{"name":"n","dtype":"int64","value":"n"}],"reference":{"source":{"path":"r.c","digest":"sha256:d7f6b4f60e20eac74073fc65fc12ab2d8adcfaf95a02d2154c4f164026599d30"},"outputs":{"y":"f_at"},"rtol":0.0,"atol":0.0,"samples":0}}	2026-11-29 00:03:11.236134+00	admin-28800058977468	1
2	\\xe0c909bdd6be11aa4d539e3b4c8c50d00a2213ae213c64ec5008e5bbea7c467b	dejavu/x	external	{"name":"dejavu/x","language":"external","key":["n"],"exports":{"dejavu":{}}}	2026-11-29 00:03:16.795255+00	admin-28800058977468	1
3	\\xba188d52254e976f0a8aec29590f13d7e3e9d84265fa141ace3444a334863114	quick/c	c	{"arguments":[{"access":"write","dtype":"float32","name":"y","shape":["n"]},{"access":"read","dtype":"float32","fill":"normal","name":"x","shape":["n"]},{"dtype":"int64","name":"n","value":"n"}],"bytes":"8 * n","entry":"quick","flops":"n","key":["n"],"language":"c","name":"quick/c","reference":{"atol":9.9999999999999995e-8,"outputs":{"y":"y_at"},"rtol":9.9999999999999995e-7,"samples":0,"source":{"digest":"sha256:8da5cbc408d7b1e6adf09b11a906b4ab4a4b754ede1ffdc06e672eebc4e21523","path":"reference.c"}},"sources":[{"digest":"sha256:521ff398ebcc0a318c52e0d165ce5397ffd426788746142c93b161f66e35c1a2","path":"quick.c"}]}	2026-11-29 00:03:16.877557+00	admin-28800058977468	1
4	\\x07e709eb27055ba72957b24acbae9d431578d88b15c696150700527081114a81	module.f/fp32-0000	triton	{"name":"module.f/fp32-0000","language":"triton","entry":"f","key":["n"],"cases":"build","sources":[{"path":"kernel.py","digest":"sha256:332244a84d1dbcfebe13e5b1d32961068bc248606d06e0d8138e72968fa2f131"}],"arguments":[{"name":"y","dtype":"float32","kind":"buffer"},{"name":"n","dtype":"int64","kind":"scalar"}]}	2026-11-29 00:03:17.222194+00	admin-28800058977468	1
\.


--
-- Data for Name: lease_queues; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.lease_queues (device_class, owner_id, priority, waiting_since) FROM stdin;
\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	1	0	2026-11-29 00:03:11.587704+00
\\x80d97627d7f318d1f82af41f5663c72605c9e6c83a776db763ade968ec53581e	3	-50	2026-11-29 00:03:17.434763+00
\.


--
-- Data for Name: leases; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.leases (id, job_id, stage, round, process, configs, remaining, state, epoch, device_class, priority, avoid_agents, agent, device, nonce, granted_at, expires_at, current_config, posts, fruitless, device_us, outcomes, config_us, is_split, apart_until, token_id, opening_us, epoch_opening_us, owner_id, epoch_device_us, due_at) FROM stdin;
1	1	screen	0	0	{[0,3)}	{[0,1),[2,3)}	cancelled	2	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	268aaab5d993e17ed47187b31a793b8e	cpu0	n1	2026-11-29 00:03:12.720103+00	2026-11-29 00:03:11.739116+00	\N	0	2	0	{0,0,1,0,0,0}	\N	f	\N	1	0	0	1	0	2026-11-29 00:03:12.739116+00
5	3	final	0	1	{[0,3)}	{}	done	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	268aaab5d993e17ed47187b31a793b8e	cpu0	n6	2026-11-29 00:03:16.681922+00	2026-11-29 00:13:16.682145+00	\N	1	0	90000	{3,0,0,0,0,0}	\N	f	\N	1	0	0	1	90000	2026-11-29 00:13:16.682147+00
2	2	screen	0	0	{[0,3)}	{[0,1),[2,3)}	cancelled	2	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	268aaab5d993e17ed47187b31a793b8e	cpu0	n3	2026-11-29 00:03:14.275902+00	2026-11-29 00:03:13.300367+00	\N	0	2	0	{0,0,1,0,0,0}	\N	f	\N	1	0	0	1	0	2026-11-29 00:03:14.300367+00
3	3	screen	0	0	{[0,3)}	{}	done	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	268aaab5d993e17ed47187b31a793b8e	cpu0	n4	2026-11-29 00:03:16.654061+00	2026-11-29 00:13:16.655425+00	\N	1	0	90000	{3,0,0,0,0,0}	\N	f	\N	1	0	0	1	90000	2026-11-29 00:13:16.655426+00
4	3	final	0	0	{[0,3)}	{}	done	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	268aaab5d993e17ed47187b31a793b8e	cpu0	n5	2026-11-29 00:03:16.671472+00	2026-11-29 00:13:16.671709+00	\N	1	0	90000	{3,0,0,0,0,0}	\N	f	\N	1	0	0	1	90000	2026-11-29 00:13:16.67171+00
6	3	final	0	2	{[0,3)}	{}	done	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	268aaab5d993e17ed47187b31a793b8e	cpu0	n7	2026-11-29 00:03:16.685404+00	2026-11-29 00:13:16.685607+00	\N	1	0	90000	{3,0,0,0,0,0}	\N	f	\N	1	0	0	1	90000	2026-11-29 00:13:16.685608+00
7	4	screen	0	0	{[0,3)}	{}	done	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	268aaab5d993e17ed47187b31a793b8e	cpu0	n9	2026-11-29 00:03:16.708396+00	2026-11-29 00:13:16.708614+00	\N	1	0	90000	{0,3,0,0,0,0}	\N	f	\N	1	0	0	1	90000	2026-11-29 00:13:16.708615+00
8	5	screen	0	0	{[0,3)}	{[0,3)}	cancelled	0	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	\N	\N	\N	\N	\N	\N	0	0	0	{0,0,0,0,0,0}	\N	f	\N	\N	0	0	1	0	\N
9	6	screen	0	0	{[0,3)}	{}	done	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	268aaab5d993e17ed47187b31a793b8e	cpu0	n11	2026-11-29 00:03:16.970694+00	2026-11-29 00:13:16.970921+00	\N	1	0	90000	{3,0,0,0,0,0}	\N	f	\N	1	0	0	1	90000	2026-11-29 00:13:16.970922+00
10	6	final	0	0	{[0,3)}	{}	done	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	268aaab5d993e17ed47187b31a793b8e	cpu0	n12	2026-11-29 00:03:16.97672+00	2026-11-29 00:13:16.977022+00	\N	1	0	90000	{3,0,0,0,0,0}	\N	f	\N	1	0	0	1	90000	2026-11-29 00:13:16.977024+00
11	6	final	0	1	{[0,3)}	{}	done	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	268aaab5d993e17ed47187b31a793b8e	cpu0	n13	2026-11-29 00:03:17.003916+00	2026-11-29 00:13:17.004215+00	\N	1	0	90000	{3,0,0,0,0,0}	\N	f	\N	1	0	0	1	90000	2026-11-29 00:13:17.004217+00
12	6	final	0	2	{[0,3)}	{}	done	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	268aaab5d993e17ed47187b31a793b8e	cpu0	n14	2026-11-29 00:03:17.008822+00	2026-11-29 00:13:17.009122+00	\N	1	0	90000	{3,0,0,0,0,0}	\N	f	\N	1	0	0	1	90000	2026-11-29 00:13:17.009123+00
13	7	screen	0	0	{[0,3)}	{}	done	1	\\x80d97627d7f318d1f82af41f5663c72605c9e6c83a776db763ade968ec53581e	-50	{}	905961172a7ea2ef19a21d6e064c410b	cpu0	n16	2026-11-29 00:03:17.407184+00	2026-11-29 00:13:17.408161+00	\N	1	0	3000	{3,0,0,0,0,0}	\N	f	\N	1	0	0	3	3000	2026-11-29 00:13:17.408163+00
14	7	final	0	0	{[0,2)}	{}	done	1	\\x80d97627d7f318d1f82af41f5663c72605c9e6c83a776db763ade968ec53581e	-50	{}	905961172a7ea2ef19a21d6e064c410b	cpu0	n17	2026-11-29 00:03:17.422101+00	2026-11-29 00:13:17.42242+00	\N	1	0	2000	{2,0,0,0,0,0}	\N	f	\N	1	0	0	3	2000	2026-11-29 00:13:17.422422+00
15	7	final	0	1	{[0,2)}	{}	done	1	\\x80d97627d7f318d1f82af41f5663c72605c9e6c83a776db763ade968ec53581e	-50	{}	905961172a7ea2ef19a21d6e064c410b	cpu0	n18	2026-11-29 00:03:17.426941+00	2026-11-29 00:13:17.4272+00	\N	1	0	2000	{2,0,0,0,0,0}	\N	f	\N	1	0	0	3	2000	2026-11-29 00:13:17.427201+00
16	7	final	0	2	{[0,2)}	{}	done	1	\\x80d97627d7f318d1f82af41f5663c72605c9e6c83a776db763ade968ec53581e	-50	{}	905961172a7ea2ef19a21d6e064c410b	cpu0	n19	2026-11-29 00:03:17.433881+00	2026-11-29 00:13:17.43411+00	\N	1	0	2000	{2,0,0,0,0,0}	\N	f	\N	1	0	0	3	2000	2026-11-29 00:13:17.434111+00
20	9	screen	0	0	{[0,3)}	{[0,3)}	open	0	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	-5	{}	\N	\N	\N	\N	\N	\N	0	0	0	{0,0,0,0,0,0}	\N	f	\N	\N	0	0	1	0	\N
19	8	screen	0	0	{[16,24)}	{[16,24)}	open	0	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	\N	\N	\N	\N	\N	\N	0	0	0	{0,0,0,0,0,0}	\N	f	\N	\N	0	0	1	0	\N
17	8	screen	0	0	{[0,8)}	{[4,8)}	held	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	f0f3cdf8fe67a25c172e18dd63c23d62	cpu0	n21	2026-11-29 00:03:18.628814+00	2026-11-29 00:13:18.630028+00	\N	1	0	4000	{4,0,0,0,0,0}	\N	f	\N	5	0	0	1	4000	2026-11-29 00:13:18.630029+00
18	8	screen	0	0	{[8,16)}	{[8,16)}	held	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	17dd149e19afc0da89169693ccd62c48	cpu0	n22	2026-11-29 00:03:18.643235+00	2026-11-29 00:13:18.644241+00	\N	0	1	0	{0,0,0,0,0,0}	\N	f	\N	5	0	0	1	0	2026-11-29 00:13:18.644243+00
\.


--
-- Data for Name: losses; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.losses (id, job_id, config, lease_id, epoch, agent, device, at, judged_at, subjects) FROM stdin;
1	1	1	1	1	268aaab5d993e17ed47187b31a793b8e	cpu0	2026-11-29 00:03:12.668336+00	2026-11-29 00:03:16.564064+00	{"\\\\x3e572a45eda63b643b88566c20a827e85d18d52f778592e6854408513eaa7ace","\\\\xa350ff10991bd934edfdc4511b0b8b6410e5cd8101d64db6727a94d4098c6db8"}
2	1	1	1	2	268aaab5d993e17ed47187b31a793b8e	cpu0	2026-11-29 00:03:13.725044+00	2026-11-29 00:03:16.564064+00	{"\\\\x3e572a45eda63b643b88566c20a827e85d18d52f778592e6854408513eaa7ace","\\\\xa350ff10991bd934edfdc4511b0b8b6410e5cd8101d64db6727a94d4098c6db8"}
3	2	1	2	1	268aaab5d993e17ed47187b31a793b8e	cpu0	2026-11-29 00:03:14.248819+00	2026-11-29 00:03:16.564064+00	{"\\\\x3e572a45eda63b643b88566c20a827e85d18d52f778592e6854408513eaa7ace","\\\\xa350ff10991bd934edfdc4511b0b8b6410e5cd8101d64db6727a94d4098c6db8"}
4	2	1	2	2	268aaab5d993e17ed47187b31a793b8e	cpu0	2026-11-29 00:03:14.76766+00	2026-11-29 00:03:16.564064+00	{"\\\\x3e572a45eda63b643b88566c20a827e85d18d52f778592e6854408513eaa7ace","\\\\xa350ff10991bd934edfdc4511b0b8b6410e5cd8101d64db6727a94d4098c6db8"}
\.


--
-- Data for Name: measurement_objects; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.measurement_objects (job_id, measurement, object) FROM stdin;
\.


--
-- Data for Name: measurement_partitions; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.measurement_partitions (first_job, end_job, partition, made_at, emptied_at) FROM stdin;
0	1001	measurements_0	2026-11-29 00:03:10.082185+00	\N
\.


--
-- Data for Name: measurements_0; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.measurements_0 (id, job_id, lease_id, epoch, seq, body_digest, config, stage, round, process, agent, device, outcome, detail, timer, regime, samples_us, baseline_us, ratio, clock_mhz, compile_ms, device_us, vgprs, agprs, spills, lds_bytes, occupancy, late, at, conditions, "end", quarantined, temperature_c) FROM stdin;
1	1	1	2	-2	\N	1	screen	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	runtime	poisoned: 2 leases were lost while it was being measured, on 1 device(s)	\N	\N	{}	{}	\N	\N	\N	\N	\N	\N	\N	\N	\N	f	2026-11-29 00:03:13.725044+00	\N	\N	f	\N
2	2	2	2	-2	\N	1	screen	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	runtime	poisoned: 2 leases were lost while it was being measured, on 1 device(s)	\N	\N	{}	{}	\N	\N	\N	\N	\N	\N	\N	\N	\N	f	2026-11-29 00:03:14.76766+00	\N	\N	f	\N
3	3	3	1	1	\\x97eeb8cd8934880ec5205a560a44fa5f5bdbac14a23ae7b9a1d1e865ae15547d	0	screen	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.659541+00	\N	\N	f	\N
4	3	3	1	2	\\x14e4307419eac4ff6f0135bf43ff1b3ceb7985dc12b3e3ceed158f4ae97414b3	1	screen	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{101,101,101,101,101}	{100,100,100,100,100}	1.01	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.659541+00	\N	\N	f	\N
5	3	3	1	3	\\x0dc2df8d792bccc4b65a0fddb496da327f37939deeaa38f193a84c83fd52ae6d	2	screen	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{102,102,102,102,102}	{100,100,100,100,100}	1.02	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.659541+00	\N	\N	f	\N
6	3	4	1	4	\\x97dc3e72894e11970176aaaf4219ca3118fa6de6f791ad9a0053780267aac4be	0	final	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.673228+00	\N	\N	f	\N
7	3	4	1	5	\\x9de8749c6d38612adc630eb3b34be24c2e572e308cefc72f96e69deb3433ba08	1	final	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{101,101,101,101,101}	{100,100,100,100,100}	1.01	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.673228+00	\N	\N	f	\N
8	3	4	1	6	\\xbedb4281e104dfd31cf847dda349512656a9f41fe3d564f8928cf2193da761b5	2	final	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{102,102,102,102,102}	{100,100,100,100,100}	1.02	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.673228+00	\N	\N	f	\N
9	3	5	1	7	\\x8e6ffe7713f4ded3550d08635b792d93bfea0ed4d40282f42c1d57745cb038a6	0	final	0	1	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.68347+00	\N	\N	f	\N
10	3	5	1	8	\\xa329aabe521cca21d361bed0fec28009f294361c49c4d37cba5f495bdaaeff97	1	final	0	1	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{101,101,101,101,101}	{100,100,100,100,100}	1.01	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.68347+00	\N	\N	f	\N
11	3	5	1	9	\\x4dd0a72c4e65d65696153e410cdaa8a0fffae912699076e273064563e92ec302	2	final	0	1	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{102,102,102,102,102}	{100,100,100,100,100}	1.02	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.68347+00	\N	\N	f	\N
12	3	6	1	10	\\xf53bea3723d2b93138a9226f6a1bf0d02e4830a452f747091359a2700b4f70a8	0	final	0	2	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.68676+00	\N	\N	f	\N
13	3	6	1	11	\\x83e950b6f00ea3f44e8e9e96293c4c615b725ee1b7f8cc55ce1af4cb206ef3e0	1	final	0	2	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{101,101,101,101,101}	{100,100,100,100,100}	1.01	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.68676+00	\N	\N	f	\N
14	3	6	1	12	\\xc1478d43f48bf3b8a5d59a5dbe48fe3099f1a0ced463c1ca4a9b47caded9e161	2	final	0	2	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{102,102,102,102,102}	{100,100,100,100,100}	1.02	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.68676+00	\N	\N	f	\N
15	4	7	1	13	\\x4e0bc7685e07767767cd4913a4d0e07db2047d9da6f162cf5aaa5589ab591154	0	screen	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	compile	because	\N	cold	{}	{}	\N	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.71147+00	\N	\N	f	\N
16	4	7	1	14	\\x6f888dab96f2e3b1ad9813b75072248f87eeb88f4cc5d66ef760e9fb001bd67c	1	screen	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	compile	because	\N	cold	{}	{}	\N	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.71147+00	\N	\N	f	\N
17	4	7	1	15	\\xfc5c6f30c912387e63389d162990ebb04deda048f315b33663d341d1e70a4cc6	2	screen	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	compile	because	\N	cold	{}	{}	\N	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.71147+00	\N	\N	f	\N
18	6	9	1	16	\\x0b65bcc951f7176eca991f3a492ae38e2d9fec6c6534327fbb6c028e3eb10a17	0	screen	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.97309+00	\N	\N	f	\N
19	6	9	1	17	\\x40ee4dd6e087364753c004866b401f77c751705d2ca24d0e64402b9746b19d2e	1	screen	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{101,101,101,101,101}	{100,100,100,100,100}	1.01	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.97309+00	\N	\N	f	\N
20	6	9	1	18	\\x5a57d53e03a5dd327d022664458e167da66a20009a1eeac8458ecb2dbc4e8009	2	screen	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{102,102,102,102,102}	{100,100,100,100,100}	1.02	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.97309+00	\N	\N	f	\N
21	6	10	1	19	\\x79c8632842b9481b00096c1f3b5f4821de92fc9a4e624bbcb48ea93902401dcb	0	final	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.985077+00	\N	\N	f	\N
22	6	10	1	20	\\x607737381e204dd22f38f312be8a844b25e839cf8ba0844980414892e01fc005	1	final	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{101,101,101,101,101}	{100,100,100,100,100}	1.01	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.985077+00	\N	\N	f	\N
23	6	10	1	21	\\xfb03221d1eeb80f69c706852698690c09f08808880f038fc5e43c805c46255e8	2	final	0	0	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{102,102,102,102,102}	{100,100,100,100,100}	1.02	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:16.985077+00	\N	\N	f	\N
24	6	11	1	22	\\x9724f1b79e2efa1920c4f3cc766dadfd64e5ec279a8ed8a70940e677faa85492	0	final	0	1	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.005974+00	\N	\N	f	\N
25	6	11	1	23	\\x6df8c66ea2e033abfab4a381507c5326ae82e19af7512feb014db31b38b97e0b	1	final	0	1	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{101,101,101,101,101}	{100,100,100,100,100}	1.01	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.005974+00	\N	\N	f	\N
26	6	11	1	24	\\x8223cc10e1c4908b9949a7ed4a40b55236d9d1bbe0f988b8101ce6a42a56f99b	2	final	0	1	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{102,102,102,102,102}	{100,100,100,100,100}	1.02	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.005974+00	\N	\N	f	\N
27	6	12	1	25	\\xa3ba9ec48995baa66f836523810920fa1aff0703dfbb896d4bcd6987d4affcec	0	final	0	2	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.013113+00	\N	\N	f	\N
28	6	12	1	26	\\xc3002788e03d8c43f192a26a39ed8cf8b3bfdd9bf8b5ab2a2604e9da69314700	1	final	0	2	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{101,101,101,101,101}	{100,100,100,100,100}	1.01	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.013113+00	\N	\N	f	\N
29	6	12	1	27	\\x8552ec4ac0d9de40b8cdc92e618bf7386aece5a2da3b0ed2ea728f58d8905594	2	final	0	2	268aaab5d993e17ed47187b31a793b8e	cpu0	correct	\N	\N	cold	{102,102,102,102,102}	{100,100,100,100,100}	1.02	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.013113+00	\N	\N	f	\N
30	7	13	1	1	\\xd011c32b1407646f435319db96e1ec654558df7e416a951aa610ef164da3bbb9	0	screen	0	0	905961172a7ea2ef19a21d6e064c410b	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.410774+00	\N	\N	f	\N
31	7	13	1	2	\\x4fe7f2321630c212da7d16fcdd885e68bc259eaf855483ba09c44f83105392eb	1	screen	0	0	905961172a7ea2ef19a21d6e064c410b	cpu0	correct	\N	\N	cold	{50,50,50,50,50}	{100,100,100,100,100}	0.5	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.410774+00	\N	\N	f	\N
32	7	13	1	3	\\x7e47bd9977d3c9eb3e6b246c2cb2911c8c6281b5f244315239ef9142c3e23e03	2	screen	0	0	905961172a7ea2ef19a21d6e064c410b	cpu0	correct	\N	\N	cold	{200,200,200,200,200}	{100,100,100,100,100}	2	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.410774+00	\N	\N	f	\N
35	7	15	1	6	\\xd5d6f71c74231b01beb2148c0c42f0937feda974a2e519e6713fbb03f8604255	0	final	0	1	905961172a7ea2ef19a21d6e064c410b	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.428353+00	\N	\N	f	\N
36	7	15	1	7	\\x19132553fc93879f0eb60e0c423f31c5fd7489dd2180fd63c66a8e5375f61d3f	1	final	0	1	905961172a7ea2ef19a21d6e064c410b	cpu0	correct	\N	\N	cold	{50,50,50,50,50}	{100,100,100,100,100}	0.5	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.428353+00	\N	\N	f	\N
33	7	14	1	4	\\x127af3acf12c1f71d5c061699b5734d0df2559bc2a3019b0b35bb5b109806eb4	0	final	0	0	905961172a7ea2ef19a21d6e064c410b	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.424228+00	\N	\N	f	\N
34	7	14	1	5	\\x17ed710cfd25baf0d1ee9f033a3aa307c5540cbc343e0d83f658fbbd15095fd0	1	final	0	0	905961172a7ea2ef19a21d6e064c410b	cpu0	correct	\N	\N	cold	{50,50,50,50,50}	{100,100,100,100,100}	0.5	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.424228+00	\N	\N	f	\N
37	7	16	1	8	\\x703821e2395abe6e0b950bb03fd505b6311296073d8d37e4cfa557e5f45bd472	0	final	0	2	905961172a7ea2ef19a21d6e064c410b	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.435251+00	\N	\N	f	\N
38	7	16	1	9	\\xabf26dd2cdaad36202edf1c049bed60a317a99005d3838fdbc568fa9428557bd	1	final	0	2	905961172a7ea2ef19a21d6e064c410b	cpu0	correct	\N	\N	cold	{50,50,50,50,50}	{100,100,100,100,100}	0.5	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:17.435251+00	\N	\N	f	\N
39	8	17	1	1	\\xd011c32b1407646f435319db96e1ec654558df7e416a951aa610ef164da3bbb9	0	screen	0	0	f0f3cdf8fe67a25c172e18dd63c23d62	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:18.633834+00	\N	\N	f	\N
40	8	17	1	2	\\x995123b52e52998f702fb5f34d7694a4dc46f6f667a3714e4fae742ec4712596	1	screen	0	0	f0f3cdf8fe67a25c172e18dd63c23d62	cpu0	correct	\N	\N	cold	{101,101,101,101,101}	{100,100,100,100,100}	1.01	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:18.633834+00	\N	\N	f	\N
41	8	17	1	3	\\xd3e1b6ab76802de3bc75f2155d9e1d57e070ccc571b5fa1ce2bcdef851c168af	2	screen	0	0	f0f3cdf8fe67a25c172e18dd63c23d62	cpu0	correct	\N	\N	cold	{102,102,102,102,102}	{100,100,100,100,100}	1.02	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:18.633834+00	\N	\N	f	\N
42	8	17	1	4	\\xa6f577cfd45df5a27065cbb313165a4836f89c6001e053b0c9eb2f8a1c942352	3	screen	0	0	f0f3cdf8fe67a25c172e18dd63c23d62	cpu0	correct	\N	\N	cold	{103,103,103,103,103}	{100,100,100,100,100}	1.03	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-29 00:03:18.633834+00	\N	\N	f	\N
\.


--
-- Data for Name: overrides; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.overrides (id, kind, kernel, key, environment, tag, config, reason, until, made_by, made_by_id, made_at) FROM stdin;
1	ban	other	\N	{}	\N	{"A":3}	NaN	\N	admin-28800058977468	1	2026-11-29 00:03:16.928764+00
\.


--
-- Data for Name: owners; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.owners (id, name, weight, device_seconds_per_day, used_us, leases, used_at, day, day_us) FROM stdin;
0		1	\N	0	0	2026-11-29 00:03:10.142724+00	2026-11-29	0
2	the-submitter	2	\N	0	0	2026-11-29 00:03:16.94472+00	2026-11-29	0
1	admin-28800058977468	1	\N	5150847.328645061	12.976588635744768	2026-11-29 00:03:17.819477+00	2026-11-29	3868282
3	(server)	1	\N	409000	4	2026-11-29 00:03:17.819477+00	2026-11-29	9000
\.


--
-- Data for Name: poison; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.poison (id, scope, subject, device_class, environment_id, kernel, build, object, config_values, reason, evidence, at, settled_at, released_at, released_by, released_by_id, release_reason, last_loss) FROM stdin;
1	config	\\x3e572a45eda63b643b88566c20a827e85d18d52f778592e6854408513eaa7ace	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	1	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	\N	\N	{"A":2}	4 leases were lost by 1 agents while it was being measured, repeatedly in each of 2 jobs	[{"job":"1","lease":"1","epoch":1,"config":1,"agent":"268aaab5d993e17ed47187b31a793b8e","device":"cpu0","at":"2026-11-29T00:03:12.668Z"},{"job":"1","lease":"1","epoch":2,"config":1,"agent":"268aaab5d993e17ed47187b31a793b8e","device":"cpu0","at":"2026-11-29T00:03:13.725Z"},{"job":"2","lease":"2","epoch":1,"config":1,"agent":"268aaab5d993e17ed47187b31a793b8e","device":"cpu0","at":"2026-11-29T00:03:14.248Z"},{"job":"2","lease":"2","epoch":2,"config":1,"agent":"268aaab5d993e17ed47187b31a793b8e","device":"cpu0","at":"2026-11-29T00:03:14.767Z"}]	2026-11-29 00:03:16.564064+00	\N	2026-11-29 00:03:16.627506+00	admin-28800058977468	1	the driver was updated	4
\.


--
-- Data for Name: policy; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.policy (is_only, mode, device_seconds_per_day, configs_max, tokens, images, channel, require, promote, set_at, set_by, set_by_id) FROM stdin;
t	suggest	3600	\N	{program}	{}	stable	none	f	2026-11-29 00:03:18.598481+00	gone	15
\.


--
-- Data for Name: proposals; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.proposals (id, channel, release, environment_digest, environment, tag, regime, winners, images, etag, changes, state, reason, made_at, decided_at, decided_by, decided_by_id) FROM stdin;
1	stable	\\x001f840ee8c5466bc64357ec130eceb6f72c6f3029211db9fd74cca699a0b4bf	\\x9c40fac236b9469ea70ca274a4906bba358dcaf465dbc936b8643c1924010e3e	{"rocm":"6.4.1","triton":"3.6.0","gpu":"AMD Instinct MI300X","arch":"gfx942","partition":"SPX/NPS1","compute_units":304}	default	cold	1	{sha256:1111111111111111111111111111111111111111111111111111111111111111}	\N	{"added":[{"name":"module.f/fp32-0000","kernel":"sha256:07e709eb27055ba72957b24acbae9d431578d88b15c696150700527081114a81","key":{"n":64},"config":{"MODE":1}}],"removed":[],"changed":[],"same":0,"kept":[],"skipped":[]}	open	\N	2026-11-29 00:03:18.570617+00	\N	\N	\N
\.


--
-- Data for Name: release_captures; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.release_captures (release, kernel, key_digest) FROM stdin;
\\x001f840ee8c5466bc64357ec130eceb6f72c6f3029211db9fd74cca699a0b4bf	\\x07e709eb27055ba72957b24acbae9d431578d88b15c696150700527081114a81	\\x59463b5b734b8fd57991beff973f24278cbf0a77b2d81edaeb9dd2b4fa0e1d2c
\.


--
-- Data for Name: release_fetchers; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.release_fetchers (id, release, fetched_by_id, fetched_by, kind, channel, rule, requests, first_at, last_at) FROM stdin;
1	\\x2afcd415ffb6ded2ce22695b07a40c0875e80a1b1beaf3cd17404c91a7df65fa	1	admin-28800058977468	release			1	2026-11-29 00:03:16.784451+00	2026-11-29 00:03:16.784451+00
2	\\x2afcd415ffb6ded2ce22695b07a40c0875e80a1b1beaf3cd17404c91a7df65fa	3	the-reader	entry	stable	exact	1	2026-11-29 00:03:18.656961+00	2026-11-29 00:03:18.656961+00
3	\\x2afcd415ffb6ded2ce22695b07a40c0875e80a1b1beaf3cd17404c91a7df65fa	3	the-reader	files			1	2026-11-29 00:03:18.652961+00	2026-11-29 00:03:18.652961+00
4	\\x2afcd415ffb6ded2ce22695b07a40c0875e80a1b1beaf3cd17404c91a7df65fa	3	the-reader	release			1	2026-11-29 00:03:18.651961+00	2026-11-29 00:03:18.651961+00
\.


--
-- Data for Name: release_fetches; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.release_fetches (release, fetched_at) FROM stdin;
\\x001f840ee8c5466bc64357ec130eceb6f72c6f3029211db9fd74cca699a0b4bf	2026-11-29 00:03:18.696961+00
\\x2afcd415ffb6ded2ce22695b07a40c0875e80a1b1beaf3cd17404c91a7df65fa	2026-11-29 00:03:18.696961+00
\.


--
-- Data for Name: releases; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.releases (id, digest, environment_digest, environment, tag, winners, bytes, created_at, regime, made_by, made_by_id) FROM stdin;
1	\\x2afcd415ffb6ded2ce22695b07a40c0875e80a1b1beaf3cd17404c91a7df65fa	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	{"arch":"x86_64","compute_units":4,"cpu":"gcc 1","gpu":"Test CPU","partition":""}	default	1	\\x7b22656e7669726f6e6d656e74223a7b2261726368223a227838365f3634222c22636f6d707574655f756e697473223a342c22637075223a226763632031222c22677075223a225465737420435055222c22706172746974696f6e223a22227d2c226b65726e656c73223a5b7b22636f6e66696773223a5b7b226f7264696e616c223a302c227370616365223a227368613235363a30336133663866643932373837316533353763336139323439363266633964663363313665333639643762643930303530356163383530303130326162363534222c2276616c756573223a7b2241223a317d7d5d2c226b65726e656c223a227368613235363a36643733623937643062343961386639396438306466386333366636383065356239323631636339376432303564303463346532333031636639373038316566222c226b6579223a5b226e225d2c226e616d65223a22746573742f6c6561736573222c2270726f76656e616e6365223a5b7b226f726967696e223a2274756e6564222c227370656e745f6465766963655f7365636f6e6473223a302e33367d5d2c2277696e6e657273223a5b5b5b36345d2c302c302c5b302e315d2c335d5d7d5d2c22746167223a2264656661756c74222c2276657273696f6e223a327d	2026-11-29 00:03:16.72778+00	cold	admin-28800058977468	1
2	\\x001f840ee8c5466bc64357ec130eceb6f72c6f3029211db9fd74cca699a0b4bf	\\x9c40fac236b9469ea70ca274a4906bba358dcaf465dbc936b8643c1924010e3e	{"arch":"gfx942","compute_units":304,"gpu":"AMD Instinct MI300X","partition":"SPX/NPS1","rocm":"6.4.1","triton":"3.6.0"}	default	1	\\x7b22656e7669726f6e6d656e74223a7b2261726368223a22676678393432222c22636f6d707574655f756e697473223a3330342c22677075223a22414d4420496e7374696e6374204d4933303058222c22706172746974696f6e223a225350582f4e505331222c22726f636d223a22362e342e31222c22747269746f6e223a22332e362e30227d2c226b65726e656c73223a5b7b22636f6e66696773223a5b7b226f7264696e616c223a312c227370616365223a227368613235363a62653437616262373461393738353863653562643938353830646130323434386434656534623539393862353564333039626230353664323666373238393565222c2276616c756573223a7b224d4f4445223a317d7d5d2c226b65726e656c223a227368613235363a30376537303965623237303535626137323935376232346163626165396434333135373864383862313563363936313530373030353237303831313134613831222c226b6579223a5b226e225d2c226e616d65223a226d6f64756c652e662f667033322d30303030222c2270726f76656e616e6365223a5b7b226275696c64223a227368613235363a62626264656334383337363838326564323430303436636633346434623839646332326662366166613061653866373637366663386162313538303636386361222c226f726967696e223a2274756e6564222c227370656e745f6465766963655f7365636f6e6473223a302e3030397d5d2c2277696e6e657273223a5b5b5b36345d2c302c302c5b302e30355d2c375d5d7d5d2c22746167223a2264656661756c74222c2276657273696f6e223a327d	2026-11-29 00:03:18.56862+00	cold	(server)	\N
\.


--
-- Data for Name: remote_files; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.remote_files (id, token_id, image, folder, name, is_group, bytes, created_at, used_at) FROM stdin;
1	13	sha256:1111111111111111111111111111111111111111111111111111111111111111	AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA	add.json	t	\\x5b5b226164642e6a736f6e222c20325d5d0a7b7d	2026-11-29 00:03:18.613271+00	2026-11-29 00:03:18.613271+00
\.


--
-- Data for Name: remote_usage; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.remote_usage (token_id, part, files, bytes) FROM stdin;
13	8	1	20
\.


--
-- Data for Name: schema_migrations; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.schema_migrations (version, name, checksum, applied_at) FROM stdin;
1	base	sha256:abacc2a510d570f83b0bf51950415b36367c94b17206f5b8f8b08ec1cb9f18d7	2026-11-29 00:03:09.58145+00
2	jobs	sha256:a7a6896f6f6d4f4aecf067e9e4c0b3c4529f3e8beb62b9722a79aa7ceb534402	2026-11-29 00:03:09.6201+00
3	releases	sha256:bedb14269aef4c4b60b22b7996465bb177896aaf6480ef56683519893414b0b9	2026-11-29 00:03:09.682909+00
4	lease_order	sha256:3b8106330e83c403380b83f786eafeec9aa39e0696b0813ad017f7326effb9af	2026-11-29 00:03:09.705299+00
5	builds	sha256:afd8672101832b71512b39d3c4c918d60ed08ea0d9b09ddf919d063961861c1d	2026-11-29 00:03:09.708888+00
6	campaigns	sha256:d74f6ded4204cbb53a0542ce19aaeaa4079f946974d923e84cbc4d7cd3d59ee4	2026-11-29 00:03:09.735156+00
7	trust	sha256:058dc0122ccfbad2ddbe3eadc449f27bba903025b2f60708bfc0b849e3daf877	2026-11-29 00:03:09.765108+00
8	signatures	sha256:f2fcbc81d9da54fbf91d901bc2d45aabc13b554370f3f5f1a61e143cd3f0131d	2026-11-29 00:03:09.814564+00
9	imports	sha256:9a8edcdd3fd2ccd454c9cfe6ea9e1a48dee4292b22cb2f745e312a7618bc05e8	2026-11-29 00:03:09.824881+00
10	deployments	sha256:0c8871409bf5e78c9f6ecc70d276195cf16ec5d0bac4d67477340310ca6b7807	2026-11-29 00:03:09.837236+00
11	regimes	sha256:a76cfc64bbf04bc26dfca2420244b8e92bb5de0267189ae7820e7fe4329ea7e0	2026-11-29 00:03:09.869136+00
12	identities	sha256:b94dc1d4cd583cb8c89903908e5116f50259c918b55f4fd1ed43713687b1c14b	2026-11-29 00:03:09.893505+00
13	opening	sha256:ed99905a9d1c541466b15b50cf46c9af1dd8e97446b9d9e2a1917031a4109fdd	2026-11-29 00:03:09.90908+00
14	signed_kernels	sha256:327f300976ab3488e05569fe1ce36703247b7d420f7d3d275fe21752cd7a72a0	2026-11-29 00:03:09.91004+00
15	roles	sha256:67ef891b7179fa5170271ce7935ecb8c0fe4000307a4dec5ee5be0cccdd709e8	2026-11-29 00:03:09.911812+00
16	functions	sha256:50a71719b1734147a1f7407ce49b1ed5eab838261bb90164a1292b2194b3e96a	2026-11-29 00:03:09.92913+00
17	temperature	sha256:8ff105abbb35f3339284d66e8c5094c1b9cfcc69137ff8e9037de212f6d642ee	2026-11-29 00:03:09.945024+00
18	said_once	sha256:62ae1430f9819640a3cbc42982d11937e5f3f3b6b856916072e9d5a9d1fbb489	2026-11-29 00:03:09.961313+00
19	no_key_per_row	sha256:1142774b2a3771de0e3ac8fac4e760830cd59b6930cb8aecf161446923a3e09f	2026-11-29 00:03:09.972991+00
20	choices	sha256:738b1a061fa2650676aa03d462e9919517d7e40d06a281217e4661210a8732ea	2026-11-29 00:03:09.973956+00
21	remote	sha256:c9f0255e2e614316aebd925df22b4b8c99b9431cc339a9831f15e4321d8b88ec	2026-11-29 00:03:09.984002+00
22	captures	sha256:8b4e3ba4d59cfac89c6f1a2604d37fc4ba6ff4a0d46d2d7bb512c62bf1cf5909	2026-11-29 00:03:09.997012+00
23	agreement	sha256:93d6b477442506ad7a0bdb2470bab1b48a7a7d8b76eb8acd39149f136ac1a7c6	2026-11-29 00:03:10.021114+00
24	policy	sha256:711818e0d3163a57444e841ba431ef3b353e9e323e70596abd699e0bbd3f3ae2	2026-11-29 00:03:10.022654+00
25	remote_usage	sha256:416853aa55ff2b5153386d98bdf369a1756a0e3d3e799008e07696d1543b78fd	2026-11-29 00:03:10.061277+00
26	lease_front	sha256:a193cb5c57a5615fc6f107a9eabdfb46b3c0381699619f974cc3453f08043b27	2026-11-29 00:03:10.069162+00
27	limits	sha256:eba3c89e2c5b640a1d24fcfe936ca1e218d087dfd3620b774d5f93005c1605d7	2026-11-29 00:03:10.07715+00
28	measurement_ranges	sha256:6a9bf1fe2446de67d560cc63490d8456896acfdffd462734f8b124fd8d00f542	2026-11-29 00:03:10.082185+00
29	measurement_partitions	sha256:29f67720055e6e24ba5b85b36dad328aa14f6b4d3bda31f61621c8be51248128	2026-11-29 00:03:10.096285+00
30	poison	sha256:4de5dc42453758a8b36af62fbb5a3f44f87679643388abbbc724435c337a2928	2026-11-29 00:03:10.123587+00
31	shares	sha256:4681b7a94f180f4d6e502c077392c30b375fccdc9798f493a15c08c92de6d781	2026-11-29 00:03:10.142724+00
32	fleet	sha256:e51ff48568703899d9d266c9167993769bfe382d774a278c539ccbbea1151bd6	2026-11-29 00:03:10.157194+00
33	terminal	sha256:448c8fc7224bd1848cf7d66b0a8877f7a079676c87508ae75014c29b8cbe4c19	2026-11-29 00:03:10.181053+00
34	identity_providers	sha256:42103f3bd9de8928932e0ba56c586049fe059aa27b5148734cbd5f0107785df0	2026-11-29 00:03:10.193332+00
35	open_jobs	sha256:1b29f5671f407d714ad72e0758018c8abbf6214b31bcbb081ef09060cca45726	2026-11-29 00:03:10.194855+00
36	lease_due	sha256:b505dbcc92d53cfe3f0a748c7d6ebe60d229425ba616eb65a8094c22ae6b9214	2026-11-29 00:03:10.201656+00
37	fetches	sha256:1f5940d5b8169450f8aaeb1ec960cf1ddf8a88c03597a4f9b001be553e15aed2	2026-11-29 00:03:10.209134+00
38	job_leases	sha256:4545b7b1cb2aa8e79daafc1b57f11a4ab468418202b58e7dec4e7e5f395768ce	2026-11-29 00:03:10.215099+00
39	build_closures	sha256:820572f97a84f9a809b687d13b3a346c5f4ce5d01b7f0c11f60a53bc602a71ab	2026-11-29 00:03:10.22894+00
\.


--
-- Data for Name: secrets; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.secrets (name, secret) FROM stdin;
leases	\\xe0f2c0728d29abe640055cf2500e704dfa5f452c084078386d83904df6c02b14
\.


--
-- Data for Name: spaces; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.spaces (digest, space) FROM stdin;
\\x03a3f8fd927871e357c3a924962fc9df3c16e369d7bd900505ac8500102ab654	{"parameters":{"A":[1,2,3]}}
\\x207c48493ad1ca407f459168c3717f430ce72b2f79fd0ad8e00cdb8289b38e6e	{"parameters":{"A":[5,2,7]}}
\\xbe47abb74a97858ce5bd98580da02448d4ee4b5998b55d309bb056d26f72895e	{"configs":[{"MODE":0},{"MODE":1},{"MODE":2}],"default":{"MODE":0}}
\\x915056989b739b7244281c1cdb404d91d0161dd0f48a0b8532b9ed66b736c350	{"parameters":{"A":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23]}}
\.


--
-- Data for Name: tokens; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.tokens (id, name, role, digest, created_at, revoked_at, expires_at, agent, replaces, uses_left, agent_name, environment, also, channels, certificate, made_by, made_by_id, revoked_by, revoked_by_id, issuer) FROM stdin;
1	admin-28800058977468	admin	\\xf5c53d91a5de13899b5bb9a0cc852dd42d1d05cd8fe6b97f4a01c40488666cf7	2026-11-29 00:03:10.385864+00	\N	\N	\N	\N	\N	\N	\N	{}	\N	\N	(command line)	\N	\N	\N	\N
2	the-admin	admin	\\x07f9df0afbc1ee68396e396e1195b3fcd4de809f7ee94d96ebbe6bf3f84b5c82	2026-11-29 00:03:10.615458+00	\N	\N	\N	\N	\N	\N	\N	{}	\N	\N	(command line)	\N	\N	\N	\N
3	the-reader	reader	\\x9893aae6735095da9526224a03b34de0f5997ceea2ae815f3ef1cdfec8e653a2	2026-11-29 00:03:10.716899+00	\N	\N	\N	\N	\N	\N	\N	{}	\N	\N	(command line)	\N	\N	\N	\N
4	the-submitter	submitter	\\xbe33fa905a8b8ff7c768bcc20cb9bd9e73e459aa95437fb43fb5c9a4ca7a8cde	2026-11-29 00:03:10.772898+00	\N	\N	\N	\N	\N	\N	\N	{}	\N	\N	(command line)	\N	\N	\N	\N
5	the-agent	agent	\\xb9c57f125a51960bd298d9c0cbc6aa9c00f1a90720e8bacb70dab47d6999973d	2026-11-29 00:03:10.839397+00	\N	\N	\N	\N	\N	\N	\N	{}	\N	\N	(command line)	\N	\N	\N	\N
6	the-demand	demand	\\x7247657d7ae30ed99d5bdd4c8f822779b379846c1afc8096c46a9068ffe6572d	2026-11-29 00:03:10.895782+00	\N	\N	\N	\N	\N	\N	\N	{}	\N	\N	(command line)	\N	\N	\N	\N
7	the-builder	builder	\\x16794d331c72f831be0f3005697351dcc8c66229c4b87aa9770fd0c28189c4a0	2026-11-29 00:03:10.939706+00	\N	\N	\N	\N	\N	\N	\N	{}	\N	\N	(command line)	\N	\N	\N	\N
8	the-operator	operator	\\x2dafe398b4e6fdbd5af7f4b0634138668258bfd6e309bfa66b4c8472af180b39	2026-11-29 00:03:10.991542+00	\N	\N	\N	\N	\N	\N	\N	{}	\N	\N	(command line)	\N	\N	\N	\N
9	the-cache-writer	cache-writer	\\x2bf98755ec2c3088a2577e911e0960dc8d3270f4e667d01101f7ca1c503b56f9	2026-11-29 00:03:11.068873+00	\N	\N	\N	\N	\N	\N	\N	{}	\N	\N	(command line)	\N	\N	\N	\N
10	the-publisher	publisher	\\x205624ccf9456eeba0665dc5e8550fcdfeeb1bf34f1c16941e043e10dc52928c	2026-11-29 00:03:11.113503+00	\N	\N	\N	\N	\N	\N	\N	{}	{stable}	\N	(command line)	\N	\N	\N	\N
11	the-enrol	enrol	\\xce9b5f98fc5cf16c7dc130ba3cd72fa09de5ec19b2e7f0701e60597acb35787c	2026-11-29 00:03:11.164852+00	\N	2036-11-26 00:03:11.164852+00	\N	\N	3	\N	\N	{}	\N	\N	(command line)	\N	\N	\N	\N
12	admin-28801021650491	admin	\\x0fbfaf630b912a648fe3fa1d7e26f4cf7811d576c921d67a7760ba58d1b9acbd	2026-11-29 00:03:11.331364+00	\N	\N	\N	\N	\N	\N	\N	{}	\N	\N	(command line)	\N	\N	\N	\N
13	program	demand	\\x809836fba4f792e1314e4ec9754d0c25cd6775be3c53fd163aed4159e2c097d5	2026-11-29 00:03:17.059125+00	\N	\N	\N	\N	\N	\N	\N	{reader}	\N	\N	(command line)	\N	\N	\N	\N
14	builds	builder	\\x4998208950d5d15dbe5a843bf1ddf69557d6569be9992f20ffe5b7293415cd89	2026-11-29 00:03:17.124822+00	\N	\N	\N	\N	\N	\N	\N	{}	\N	\N	(command line)	\N	\N	\N	\N
15	gone	operator	\\x5e28f19d83391d72737de01f6dcf7f6e027fef3152ab9aedd19e19a73781df9f	2026-11-29 00:03:17.18841+00	2026-11-29 00:03:18.616448+00	\N	\N	\N	\N	\N	\N	{}	\N	\N	(command line)	\N	admin-28800058977468	1	\N
\.


--
-- Data for Name: winners; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.winners (job_id, config, config_values, verdict, at, quarantined, flagged, agreement, interpreted, others) FROM stdin;
3	0	{"A":1}	{"baseline_lower":1.0,"baseline_ratio":1.0,"baseline_upper":1.0,"baseline_us":100.0,"devices":1,"equivalence_set":[0,1,2],"finalists":[{"config":0,"equivalent":true,"lower":1.0,"median_us":100.0,"ratio":1.0,"upper":1.0,"winner_lower":1.0,"winner_ratio":1.0,"winner_upper":1.0},{"config":1,"equivalent":true,"lower":1.01,"median_us":101.0,"ratio":1.01,"upper":1.01,"winner_lower":0.99009901,"winner_ratio":0.99009901,"winner_upper":0.99009901},{"config":2,"equivalent":true,"lower":1.02,"median_us":102.0,"ratio":1.02,"upper":1.02,"winner_lower":0.980392157,"winner_ratio":0.980392157,"winner_upper":0.980392157}],"processes":3,"regret_bound":0.0,"samples":45,"speedup":1.0,"verdict":"SAME","winner":0,"winner_us":100.0}	2026-11-29 00:03:16.69021+00	\N	\N	none	f	\N
6	0	{"A":1}	{"baseline_lower":1.0,"baseline_ratio":1.0,"baseline_upper":1.0,"baseline_us":100.0,"devices":1,"equivalence_set":[0,1,2],"finalists":[{"config":0,"equivalent":true,"lower":1.0,"median_us":100.0,"ratio":1.0,"upper":1.0,"winner_lower":1.0,"winner_ratio":1.0,"winner_upper":1.0},{"config":1,"equivalent":true,"lower":1.01,"median_us":101.0,"ratio":1.01,"upper":1.01,"winner_lower":0.99009901,"winner_ratio":0.99009901,"winner_upper":0.99009901},{"config":2,"equivalent":true,"lower":1.02,"median_us":102.0,"ratio":1.02,"upper":1.02,"winner_lower":0.980392157,"winner_ratio":0.980392157,"winner_upper":0.980392157}],"processes":3,"regret_bound":0.0,"samples":45,"speedup":1.0,"verdict":"SAME","winner":0,"winner_us":100.0}	2026-11-29 00:03:17.01618+00	\N	\N	none	f	\N
7	1	{"MODE":1}	{"baseline_lower":0.5,"baseline_ratio":0.5,"baseline_upper":0.5,"baseline_us":100.0,"devices":1,"equivalence_set":[1],"finalists":[{"config":1,"equivalent":true,"lower":1.0,"median_us":50.0,"ratio":1.0,"upper":1.0,"winner_lower":1.0,"winner_ratio":1.0,"winner_upper":1.0},{"config":0,"equivalent":false,"lower":2.0,"median_us":100.0,"ratio":2.0,"upper":2.0,"winner_lower":0.5,"winner_ratio":0.5,"winner_upper":0.5}],"processes":3,"regret_bound":0.0,"samples":30,"speedup":2.0,"verdict":"FASTER","winner":1,"winner_us":50.0}	2026-11-29 00:03:17.437648+00	\N	\N	none	f	[]
\.


--
-- Name: audit_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.audit_id_seq', 57, true);


--
-- Name: builds_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.builds_id_seq', 1, true);


--
-- Name: captured_functions_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.captured_functions_id_seq', 2, true);


--
-- Name: captured_launches_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.captured_launches_id_seq', 2, true);


--
-- Name: channels_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.channels_id_seq', 1, true);


--
-- Name: compatibilities_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.compatibilities_id_seq', 1, true);


--
-- Name: demand_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.demand_id_seq', 1, true);


--
-- Name: environments_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.environments_id_seq', 4, true);


--
-- Name: evidence_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.evidence_id_seq', 1, true);


--
-- Name: imports_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.imports_id_seq', 1, true);


--
-- Name: jobs_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.jobs_id_seq', 9, true);


--
-- Name: kernels_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.kernels_id_seq', 4, true);


--
-- Name: leases_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.leases_id_seq', 20, true);


--
-- Name: losses_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.losses_id_seq', 4, true);


--
-- Name: measurements_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.measurements_id_seq', 42, true);


--
-- Name: overrides_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.overrides_id_seq', 1, true);


--
-- Name: owners_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.owners_id_seq', 3, true);


--
-- Name: poison_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.poison_id_seq', 1, true);


--
-- Name: proposals_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.proposals_id_seq', 1, true);


--
-- Name: release_fetchers_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.release_fetchers_id_seq', 4, true);


--
-- Name: releases_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.releases_id_seq', 2, true);


--
-- Name: remote_files_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.remote_files_id_seq', 1, true);


--
-- Name: tokens_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.tokens_id_seq', 15, true);


--
-- Name: agents agents_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.agents
    ADD CONSTRAINT agents_pkey PRIMARY KEY (id);


--
-- Name: audit audit_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);


--
-- Name: blob_chunks blob_chunks_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.blob_chunks
    ADD CONSTRAINT blob_chunks_pkey PRIMARY KEY (digest, ordinal);


--
-- Name: blob_usage blob_usage_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.blob_usage
    ADD CONSTRAINT blob_usage_pkey PRIMARY KEY (token_id, part);


--
-- Name: blobs blobs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.blobs
    ADD CONSTRAINT blobs_pkey PRIMARY KEY (digest);


--
-- Name: build_caches build_caches_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.build_caches
    ADD CONSTRAINT build_caches_pkey PRIMARY KEY (folder);


--
-- Name: build_files build_files_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.build_files
    ADD CONSTRAINT build_files_pkey PRIMARY KEY (build, digest);


--
-- Name: builds builds_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.builds
    ADD CONSTRAINT builds_id_key UNIQUE (id);


--
-- Name: builds builds_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.builds
    ADD CONSTRAINT builds_pkey PRIMARY KEY (digest);


--
-- Name: captured_functions captured_functions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.captured_functions
    ADD CONSTRAINT captured_functions_pkey PRIMARY KEY (id);


--
-- Name: captured_launches captured_launches_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.captured_launches
    ADD CONSTRAINT captured_launches_pkey PRIMARY KEY (id);


--
-- Name: channel_entries channel_entries_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channel_entries
    ADD CONSTRAINT channel_entries_pkey PRIMARY KEY (name, tag, regime, environment_digest, counter);


--
-- Name: channel_signatures channel_signatures_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channel_signatures
    ADD CONSTRAINT channel_signatures_pkey PRIMARY KEY (name, tag, regime, environment_digest, counter, key);


--
-- Name: channels channels_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channels
    ADD CONSTRAINT channels_id_key UNIQUE (id);


--
-- Name: channels channels_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channels
    ADD CONSTRAINT channels_pkey PRIMARY KEY (name, tag, regime, environment_digest);


--
-- Name: choices_signatures choices_signatures_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.choices_signatures
    ADD CONSTRAINT choices_signatures_pkey PRIMARY KEY (release, key);


--
-- Name: code_signatures code_signatures_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.code_signatures
    ADD CONSTRAINT code_signatures_pkey PRIMARY KEY (digest, key);


--
-- Name: collection_due collection_due_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.collection_due
    ADD CONSTRAINT collection_due_pkey PRIMARY KEY (is_only);


--
-- Name: compatibilities compatibilities_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.compatibilities
    ADD CONSTRAINT compatibilities_pkey PRIMARY KEY (id);


--
-- Name: demand demand_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.demand
    ADD CONSTRAINT demand_pkey PRIMARY KEY (id);


--
-- Name: demand demand_place; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.demand
    ADD CONSTRAINT demand_place UNIQUE (kernel, key_digest, environment_digest, tag, regime);


--
-- Name: device_baselines device_baselines_lease_id_epoch_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.device_baselines
    ADD CONSTRAINT device_baselines_lease_id_epoch_key UNIQUE (lease_id, epoch);


--
-- Name: devices devices_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.devices
    ADD CONSTRAINT devices_pkey PRIMARY KEY (agent, device);


--
-- Name: environments environments_digest_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.environments
    ADD CONSTRAINT environments_digest_key UNIQUE (digest);


--
-- Name: environments environments_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.environments
    ADD CONSTRAINT environments_pkey PRIMARY KEY (id);


--
-- Name: evidence evidence_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.evidence
    ADD CONSTRAINT evidence_pkey PRIMARY KEY (id);


--
-- Name: images images_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.images
    ADD CONSTRAINT images_pkey PRIMARY KEY (digest);


--
-- Name: imports imports_kernel_key_digest_environment_digest_tag_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.imports
    ADD CONSTRAINT imports_kernel_key_digest_environment_digest_tag_key UNIQUE (kernel, key_digest, environment_digest, tag);


--
-- Name: imports imports_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.imports
    ADD CONSTRAINT imports_pkey PRIMARY KEY (id);


--
-- Name: job_events job_events_kind_check; Type: CHECK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE public.job_events
    ADD CONSTRAINT job_events_kind_check CHECK ((kind = ANY (ARRAY['queued'::text, 'running'::text, 'stage'::text, 'lease_lost'::text, 'poisoned'::text, 'done'::text, 'failed'::text, 'cancelled'::text, 'budget'::text, 'late'::text, 'quarantined'::text, 'flagged'::text, 'retried'::text]))) NOT VALID;


--
-- Name: job_events job_events_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_events
    ADD CONSTRAINT job_events_pkey PRIMARY KEY (job_id, event);


--
-- Name: job_usage job_usage_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_usage
    ADD CONSTRAINT job_usage_pkey PRIMARY KEY (day, kernel, tag, run, owner, part);


--
-- Name: jobs jobs_baseline_from_check; Type: CHECK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE public.jobs
    ADD CONSTRAINT jobs_baseline_from_check CHECK ((baseline_from = ANY (ARRAY['incumbent'::text, 'imported'::text, 'default'::text, 'first'::text]))) NOT VALID;


--
-- Name: jobs jobs_identity; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_identity UNIQUE (kernel, key_digest, space_digest, environment_id, tag, run, regime);


--
-- Name: jobs jobs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);


--
-- Name: kernel_files kernel_files_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.kernel_files
    ADD CONSTRAINT kernel_files_pkey PRIMARY KEY (kernel, digest);


--
-- Name: kernels kernels_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.kernels
    ADD CONSTRAINT kernels_id_key UNIQUE (id);


--
-- Name: kernels kernels_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.kernels
    ADD CONSTRAINT kernels_pkey PRIMARY KEY (hash);


--
-- Name: lease_queues lease_queues_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.lease_queues
    ADD CONSTRAINT lease_queues_pkey PRIMARY KEY (device_class, owner_id, priority);


--
-- Name: leases leases_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (id);


--
-- Name: losses losses_lease_id_epoch_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.losses
    ADD CONSTRAINT losses_lease_id_epoch_key UNIQUE (lease_id, epoch);


--
-- Name: losses losses_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.losses
    ADD CONSTRAINT losses_pkey PRIMARY KEY (id);


--
-- Name: measurement_objects measurement_objects_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurement_objects
    ADD CONSTRAINT measurement_objects_pkey PRIMARY KEY (job_id, measurement);


--
-- Name: measurement_partitions measurement_partitions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurement_partitions
    ADD CONSTRAINT measurement_partitions_pkey PRIMARY KEY (first_job);


--
-- Name: measurements_0 measurements_0_lease_id_epoch_seq_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements_0
    ADD CONSTRAINT measurements_0_lease_id_epoch_seq_key UNIQUE (lease_id, epoch, seq);


--
-- Name: measurements measurements_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT measurements_pkey PRIMARY KEY (job_id, id);


--
-- Name: measurements_0 measurements_0_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements_0
    ADD CONSTRAINT measurements_0_pkey PRIMARY KEY (job_id, id);


--
-- Name: overrides overrides_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.overrides
    ADD CONSTRAINT overrides_pkey PRIMARY KEY (id);


--
-- Name: owners owners_name_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.owners
    ADD CONSTRAINT owners_name_key UNIQUE (name);


--
-- Name: owners owners_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.owners
    ADD CONSTRAINT owners_pkey PRIMARY KEY (id);


--
-- Name: poison poison_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.poison
    ADD CONSTRAINT poison_pkey PRIMARY KEY (id);


--
-- Name: policy policy_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.policy
    ADD CONSTRAINT policy_pkey PRIMARY KEY (is_only);


--
-- Name: proposals proposals_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.proposals
    ADD CONSTRAINT proposals_pkey PRIMARY KEY (id);


--
-- Name: release_captures release_captures_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.release_captures
    ADD CONSTRAINT release_captures_pkey PRIMARY KEY (kernel, key_digest, release);


--
-- Name: release_fetchers release_fetchers_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.release_fetchers
    ADD CONSTRAINT release_fetchers_id_key UNIQUE (id);


--
-- Name: release_fetchers release_fetchers_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.release_fetchers
    ADD CONSTRAINT release_fetchers_pkey PRIMARY KEY (release, fetched_by_id, fetched_by, kind, channel, rule);


--
-- Name: release_fetchers release_fetchers_release_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.release_fetchers
    ADD CONSTRAINT release_fetchers_release_id_key UNIQUE (release, id);


--
-- Name: release_fetches release_fetches_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.release_fetches
    ADD CONSTRAINT release_fetches_pkey PRIMARY KEY (release);


--
-- Name: releases releases_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.releases
    ADD CONSTRAINT releases_id_key UNIQUE (id);


--
-- Name: releases releases_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.releases
    ADD CONSTRAINT releases_pkey PRIMARY KEY (digest);


--
-- Name: releases releases_place; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.releases
    ADD CONSTRAINT releases_place UNIQUE (digest, environment_digest, tag, regime);


--
-- Name: remote_files remote_files_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.remote_files
    ADD CONSTRAINT remote_files_pkey PRIMARY KEY (id);


--
-- Name: remote_usage remote_usage_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.remote_usage
    ADD CONSTRAINT remote_usage_pkey PRIMARY KEY (token_id, part);


--
-- Name: schema_migrations schema_migrations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);


--
-- Name: secrets secrets_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.secrets
    ADD CONSTRAINT secrets_pkey PRIMARY KEY (name);


--
-- Name: spaces spaces_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.spaces
    ADD CONSTRAINT spaces_pkey PRIMARY KEY (digest);


--
-- Name: tokens tokens_digest_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_digest_key UNIQUE (digest);


--
-- Name: tokens tokens_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (id);


--
-- Name: winners winners_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.winners
    ADD CONSTRAINT winners_pkey PRIMARY KEY (job_id);


--
-- Name: agents_draining; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX agents_draining ON public.agents USING btree (id) WHERE (drain_reason IS NOT NULL);


--
-- Name: agents_of_token; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX agents_of_token ON public.agents USING btree (token_id);


--
-- Name: audit_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX audit_at ON public.audit USING btree (at);


--
-- Name: audit_object; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX audit_object ON public.audit USING btree (object, id);


--
-- Name: audit_token; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX audit_token ON public.audit USING btree (token, id);


--
-- Name: build_caches_build; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX build_caches_build ON public.build_caches USING btree (build);


--
-- Name: build_files_digest; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX build_files_digest ON public.build_files USING btree (digest);


--
-- Name: builds_closure; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX builds_closure ON public.builds USING btree (kernel, closure, id) WHERE (closure IS NOT NULL);


--
-- Name: builds_kernel; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX builds_kernel ON public.builds USING btree (kernel, id);


--
-- Name: captured_functions_closure; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX captured_functions_closure ON public.captured_functions USING btree (token_id, closure);


--
-- Name: captured_functions_seen; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX captured_functions_seen ON public.captured_functions USING btree (seen_at);


--
-- Name: captured_launches_build; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX captured_launches_build ON public.captured_launches USING btree (build);


--
-- Name: captured_launches_digest; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX captured_launches_digest ON public.captured_launches USING btree (function_id, digest);


--
-- Name: captured_launches_made; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX captured_launches_made ON public.captured_launches USING btree (token_id, created_at);


--
-- Name: captured_launches_seen; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX captured_launches_seen ON public.captured_launches USING btree (seen_at);


--
-- Name: captured_launches_waiting; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX captured_launches_waiting ON public.captured_launches USING btree (id) WHERE ((build IS NULL) AND (refused IS NULL));


--
-- Name: captured_launches_without_job; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX captured_launches_without_job ON public.captured_launches USING btree (id) WHERE ((build IS NOT NULL) AND (job_id IS NULL));


--
-- Name: channels_release; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX channels_release ON public.channels USING btree (release);


--
-- Name: compatibilities_pair; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX compatibilities_pair ON public.compatibilities USING btree (((asked)::text), ((served)::text));


--
-- Name: demand_open; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX demand_open ON public.demand USING btree (last_at) WHERE ((job_id IS NULL) AND (misses > 0));


--
-- Name: device_baselines_history; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX device_baselines_history ON public.device_baselines USING btree (agent, device, subject, at DESC);


--
-- Name: devices_environment; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX devices_environment ON public.devices USING btree (environment_id);


--
-- Name: evidence_last; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX evidence_last ON public.evidence USING btree (last_at);


--
-- Name: evidence_of_node; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX evidence_of_node ON public.evidence USING btree (environment_digest, tag, regime, function, key_digest, token_id, node);


--
-- Name: evidence_token; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX evidence_token ON public.evidence USING btree (token_id);


--
-- Name: imports_kernel_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX imports_kernel_id ON public.imports USING btree (kernel, id);


--
-- Name: imports_release; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX imports_release ON public.imports USING btree (tag, environment_digest);


--
-- Name: jobs_done; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_done ON public.jobs USING btree (environment_id, tag, regime, kernel, key_digest, id) WHERE (state = 'done'::public.job_state);


--
-- Name: jobs_kernel_done; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_kernel_done ON public.jobs USING btree (kernel, id) WHERE (state = 'done'::public.job_state);


--
-- Name: jobs_of_owner; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_of_owner ON public.jobs USING btree (submitted_by, id);


--
-- Name: jobs_of_policy; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_of_policy ON public.jobs USING btree (finished_at) WHERE (run = 'policy'::text);


--
-- Name: jobs_of_run; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_of_run ON public.jobs USING btree (run, id) WHERE (run <> ''::text);


--
-- Name: jobs_open_of_token; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_open_of_token ON public.jobs USING btree (submitted_by_id) WHERE (state = ANY (ARRAY['queued'::public.job_state, 'running'::public.job_state]));


--
-- Name: jobs_place; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_place ON public.jobs USING btree (tag, regime, environment_id);


--
-- Name: jobs_retry_of; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_retry_of ON public.jobs USING btree (retry_of) WHERE (retry_of IS NOT NULL);


--
-- Name: jobs_unfinished; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_unfinished ON public.jobs USING btree (id) WHERE (state = ANY (ARRAY['queued'::public.job_state, 'running'::public.job_state]));


--
-- Name: kernel_files_digest; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX kernel_files_digest ON public.kernel_files USING btree (digest);


--
-- Name: kernels_name; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX kernels_name ON public.kernels USING btree (name, id);


--
-- Name: leases_avoiding; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX leases_avoiding ON public.leases USING btree (id) WHERE ((state = 'open'::public.lease_state) AND (avoid_agents <> '{}'::text[]));


--
-- Name: leases_due; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX leases_due ON public.leases USING btree (due_at) WHERE ((state = 'held'::public.lease_state) AND (due_at IS NOT NULL));


--
-- Name: leases_held; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX leases_held ON public.leases USING btree (agent, nonce) WHERE (state = 'held'::public.lease_state);


--
-- Name: leases_job; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX leases_job ON public.leases USING btree (job_id, state);


--
-- Name: leases_open; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX leases_open ON public.leases USING btree (device_class, owner_id, ((- priority)), job_id, id) WHERE (state = 'open'::public.lease_state);


--
-- Name: leases_splittable; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX leases_splittable ON public.leases USING btree (device_class) WHERE ((state = 'held'::public.lease_state) AND (config_us IS NOT NULL));


--
-- Name: losses_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX losses_at ON public.losses USING btree (at);


--
-- Name: losses_config; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX losses_config ON public.losses USING btree (job_id, config);


--
-- Name: losses_subjects; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX losses_subjects ON public.losses USING gin (subjects) WITH (fastupdate=off);


--
-- Name: losses_unjudged; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX losses_unjudged ON public.losses USING btree (id) WHERE (judged_at IS NULL);


--
-- Name: measurement_objects_object; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX measurement_objects_object ON public.measurement_objects USING btree (object);


--
-- Name: measurements_once; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX measurements_once ON ONLY public.measurements USING btree (job_id, stage, round, process, config) WHERE (NOT late);


--
-- Name: measurements_0_once; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX measurements_0_once ON public.measurements_0 USING btree (job_id, stage, round, process, config) WHERE (NOT late);


--
-- Name: overrides_once; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX overrides_once ON public.overrides USING btree (kind, kernel, COALESCE((key)::text, ''::text), ((environment)::text), COALESCE(tag, ''::text), ((config)::text));


--
-- Name: poison_in_force; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX poison_in_force ON public.poison USING btree (subject) WHERE (released_at IS NULL);


--
-- Name: poison_of_hardware; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX poison_of_hardware ON public.poison USING btree (device_class) WHERE (released_at IS NULL);


--
-- Name: poison_released; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX poison_released ON public.poison USING btree (subject) WHERE (released_at IS NOT NULL);


--
-- Name: poison_unsettled; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX poison_unsettled ON public.poison USING btree (id) WHERE ((released_at IS NULL) AND (settled_at IS NULL));


--
-- Name: proposals_open; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX proposals_open ON public.proposals USING btree (channel, environment_digest, tag, regime) WHERE (state = 'open'::text);


--
-- Name: proposals_release; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX proposals_release ON public.proposals USING btree (release);


--
-- Name: release_captures_release; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX release_captures_release ON public.release_captures USING btree (release);


--
-- Name: remote_files_place; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX remote_files_place ON public.remote_files USING btree (token_id, image, folder, name, is_group);


--
-- Name: remote_files_used; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX remote_files_used ON public.remote_files USING btree (used_at);


--
-- Name: tokens_agent; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX tokens_agent ON public.tokens USING btree (agent) WHERE ((agent IS NOT NULL) AND (revoked_at IS NULL));


--
-- Name: tokens_live_name; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX tokens_live_name ON public.tokens USING btree (name) WHERE ((revoked_at IS NULL) AND (issuer IS NULL));


--
-- Name: winners_newest; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX winners_newest ON public.winners USING btree (at);


--
-- Name: measurements_0_once; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.measurements_once ATTACH PARTITION public.measurements_0_once;


--
-- Name: measurements_0_pkey; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.measurements_pkey ATTACH PARTITION public.measurements_0_pkey;


--
-- Name: audit audit_rows_do_not_change; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER audit_rows_do_not_change BEFORE UPDATE ON public.audit FOR EACH ROW EXECUTE FUNCTION public.append_only();


--
-- Name: blobs blobs_added; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER blobs_added AFTER INSERT ON public.blobs REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION public.blobs_changed();


--
-- Name: blobs blobs_removed; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER blobs_removed AFTER DELETE ON public.blobs REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION public.blobs_changed();


--
-- Name: builds builds_closure; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER builds_closure BEFORE INSERT OR UPDATE OF build ON public.builds FOR EACH ROW EXECUTE FUNCTION public.builds_set_closure();


--
-- Name: channels channel_counter_grows; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER channel_counter_grows BEFORE DELETE OR UPDATE ON public.channels FOR EACH ROW EXECUTE FUNCTION public.channel_counter_grows();


--
-- Name: channel_entries channel_entries_append_only; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER channel_entries_append_only BEFORE DELETE OR UPDATE ON public.channel_entries FOR EACH ROW EXECUTE FUNCTION public.append_only();


--
-- Name: jobs job_usage_note; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER job_usage_note AFTER UPDATE ON public.jobs FOR EACH ROW WHEN (((old.finished_at IS DISTINCT FROM new.finished_at) OR (old.run <> new.run))) EXECUTE FUNCTION public.job_usage_note();


--
-- Name: jobs measurement_partition_needed; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER measurement_partition_needed AFTER INSERT ON public.jobs REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION public.measurement_partition_needed();


--
-- Name: releases releases_are_immutable; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER releases_are_immutable BEFORE UPDATE ON public.releases FOR EACH ROW EXECUTE FUNCTION public.append_only();


--
-- Name: remote_files remote_files_added; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER remote_files_added AFTER INSERT ON public.remote_files REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION public.remote_files_changed();


--
-- Name: remote_files remote_files_removed; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER remote_files_removed AFTER DELETE ON public.remote_files REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION public.remote_files_changed();


--
-- Name: remote_files remote_files_replaced; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER remote_files_replaced AFTER UPDATE ON public.remote_files REFERENCING OLD TABLE AS removed NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION public.remote_files_changed();


--
-- Name: agents agents_token_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.agents
    ADD CONSTRAINT agents_token_id_fkey FOREIGN KEY (token_id) REFERENCES public.tokens(id);


--
-- Name: blob_chunks blob_chunks_digest_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.blob_chunks
    ADD CONSTRAINT blob_chunks_digest_fkey FOREIGN KEY (digest) REFERENCES public.blobs(digest) ON DELETE CASCADE;


--
-- Name: build_caches build_caches_build_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.build_caches
    ADD CONSTRAINT build_caches_build_fkey FOREIGN KEY (build) REFERENCES public.builds(digest) ON DELETE CASCADE;


--
-- Name: build_files build_files_build_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.build_files
    ADD CONSTRAINT build_files_build_fkey FOREIGN KEY (build) REFERENCES public.builds(digest) ON DELETE CASCADE;


--
-- Name: build_files build_files_digest_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.build_files
    ADD CONSTRAINT build_files_digest_fkey FOREIGN KEY (digest) REFERENCES public.blobs(digest);


--
-- Name: builds builds_kernel_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.builds
    ADD CONSTRAINT builds_kernel_fkey FOREIGN KEY (kernel) REFERENCES public.kernels(hash);


--
-- Name: captured_launches captured_launches_build_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.captured_launches
    ADD CONSTRAINT captured_launches_build_fkey FOREIGN KEY (build) REFERENCES public.builds(digest) ON DELETE SET NULL;


--
-- Name: captured_launches captured_launches_function_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.captured_launches
    ADD CONSTRAINT captured_launches_function_id_fkey FOREIGN KEY (function_id) REFERENCES public.captured_functions(id) ON DELETE CASCADE;


--
-- Name: captured_launches captured_launches_job_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.captured_launches
    ADD CONSTRAINT captured_launches_job_id_fkey FOREIGN KEY (job_id) REFERENCES public.jobs(id);


--
-- Name: captured_launches captured_launches_space_digest_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.captured_launches
    ADD CONSTRAINT captured_launches_space_digest_fkey FOREIGN KEY (space_digest) REFERENCES public.spaces(digest);


--
-- Name: channel_signatures channel_signatures_entry; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channel_signatures
    ADD CONSTRAINT channel_signatures_entry FOREIGN KEY (name, tag, regime, environment_digest, counter) REFERENCES public.channel_entries(name, tag, regime, environment_digest, counter);


--
-- Name: channels channels_release_is_of_the_place; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channels
    ADD CONSTRAINT channels_release_is_of_the_place FOREIGN KEY (release, environment_digest, tag, regime) REFERENCES public.releases(digest, environment_digest, tag, regime);


--
-- Name: choices_signatures choices_signatures_release_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.choices_signatures
    ADD CONSTRAINT choices_signatures_release_fkey FOREIGN KEY (release) REFERENCES public.releases(digest) ON DELETE CASCADE;


--
-- Name: demand demand_job_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.demand
    ADD CONSTRAINT demand_job_id_fkey FOREIGN KEY (job_id) REFERENCES public.jobs(id);


--
-- Name: demand demand_kernel_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.demand
    ADD CONSTRAINT demand_kernel_fkey FOREIGN KEY (kernel) REFERENCES public.kernels(hash);


--
-- Name: devices devices_agent_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.devices
    ADD CONSTRAINT devices_agent_fkey FOREIGN KEY (agent) REFERENCES public.agents(id) ON DELETE CASCADE;


--
-- Name: devices devices_environment_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.devices
    ADD CONSTRAINT devices_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES public.environments(id);


--
-- Name: imports imports_kernel_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.imports
    ADD CONSTRAINT imports_kernel_fkey FOREIGN KEY (kernel) REFERENCES public.kernels(hash);


--
-- Name: job_events job_events_job_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_events
    ADD CONSTRAINT job_events_job_id_fkey FOREIGN KEY (job_id) REFERENCES public.jobs(id);


--
-- Name: jobs jobs_environment_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES public.environments(id);


--
-- Name: jobs jobs_kernel_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_kernel_fkey FOREIGN KEY (kernel) REFERENCES public.kernels(hash);


--
-- Name: jobs jobs_retry_of_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_retry_of_fkey FOREIGN KEY (retry_of) REFERENCES public.jobs(id);


--
-- Name: jobs jobs_space_digest_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_space_digest_fkey FOREIGN KEY (space_digest) REFERENCES public.spaces(digest);


--
-- Name: kernel_files kernel_files_digest_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.kernel_files
    ADD CONSTRAINT kernel_files_digest_fkey FOREIGN KEY (digest) REFERENCES public.blobs(digest);


--
-- Name: kernel_files kernel_files_kernel_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.kernel_files
    ADD CONSTRAINT kernel_files_kernel_fkey FOREIGN KEY (kernel) REFERENCES public.kernels(hash) ON DELETE CASCADE;


--
-- Name: leases leases_job_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT leases_job_id_fkey FOREIGN KEY (job_id) REFERENCES public.jobs(id);


--
-- Name: losses losses_job_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.losses
    ADD CONSTRAINT losses_job_id_fkey FOREIGN KEY (job_id) REFERENCES public.jobs(id);


--
-- Name: losses losses_lease_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.losses
    ADD CONSTRAINT losses_lease_id_fkey FOREIGN KEY (lease_id) REFERENCES public.leases(id);


--
-- Name: measurement_objects measurement_objects_object_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurement_objects
    ADD CONSTRAINT measurement_objects_object_fkey FOREIGN KEY (object) REFERENCES public.blobs(digest);


--
-- Name: poison poison_environment_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.poison
    ADD CONSTRAINT poison_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES public.environments(id);


--
-- Name: poison poison_kernel_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.poison
    ADD CONSTRAINT poison_kernel_fkey FOREIGN KEY (kernel) REFERENCES public.kernels(hash);


--
-- Name: release_captures release_captures_release_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.release_captures
    ADD CONSTRAINT release_captures_release_fkey FOREIGN KEY (release) REFERENCES public.releases(digest) ON DELETE CASCADE;


--
-- Name: release_fetchers release_fetchers_release_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.release_fetchers
    ADD CONSTRAINT release_fetchers_release_fkey FOREIGN KEY (release) REFERENCES public.releases(digest) ON DELETE CASCADE;


--
-- Name: release_fetches release_fetches_release_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.release_fetches
    ADD CONSTRAINT release_fetches_release_fkey FOREIGN KEY (release) REFERENCES public.releases(digest) ON DELETE CASCADE;


--
-- Name: tokens tokens_agent_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_agent_fkey FOREIGN KEY (agent) REFERENCES public.agents(id);


--
-- Name: tokens tokens_replaces_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_replaces_fkey FOREIGN KEY (replaces) REFERENCES public.tokens(id);


--
-- Name: winners winners_job_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.winners
    ADD CONSTRAINT winners_job_id_fkey FOREIGN KEY (job_id) REFERENCES public.jobs(id);


--
-- PostgreSQL database dump complete
--


