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
    'demand'
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


SET default_tablespace = '';

SET default_table_access_method = heap;

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
    CONSTRAINT agents_id_check CHECK ((id ~ '^[0-9a-f]{32}$'::text))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='200');


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
-- Name: blobs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.blobs (
    digest bytea NOT NULL,
    size bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT blobs_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT blobs_size_check CHECK (((size >= 0) AND (size <= 67108864)))
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
    expires_at timestamp with time zone
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
    CONSTRAINT channel_signatures_key_check CHECK ((octet_length(key) = 32)),
    CONSTRAINT channel_signatures_signature_check CHECK ((octet_length(decode(signature, 'base64'::text)) = 64))
);


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
    CONSTRAINT channels_counter_check CHECK ((counter > 0)),
    CONSTRAINT channels_name_check CHECK ((name ~ '^[a-z0-9._-]{1,64}$'::text))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='50');


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
-- Name: compatibilities; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.compatibilities (
    id bigint NOT NULL,
    asked json NOT NULL,
    served json NOT NULL,
    reason text NOT NULL,
    made_by text NOT NULL,
    made_at timestamp with time zone DEFAULT now() NOT NULL
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
    CONSTRAINT demand_environment_digest_check CHECK ((octet_length(environment_digest) = 32)),
    CONSTRAINT demand_hits_check CHECK ((hits >= 0)),
    CONSTRAINT demand_kernel_ms_check CHECK ((kernel_ms > (0)::double precision)),
    CONSTRAINT demand_key_digest_check CHECK ((octet_length(key_digest) = 32)),
    CONSTRAINT demand_misses_check CHECK ((misses >= 0)),
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
    history_since timestamp with time zone
);


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
-- Name: images; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.images (
    digest bytea NOT NULL,
    identity json NOT NULL,
    put_by text NOT NULL,
    put_at timestamp with time zone DEFAULT now() NOT NULL,
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
    runner public.runner NOT NULL,
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
    CONSTRAINT jobs_baseline_check CHECK ((baseline >= 0)),
    CONSTRAINT jobs_best_ratio_check CHECK ((best_ratio > (0)::double precision)),
    CONSTRAINT jobs_budget_device_ms_check CHECK ((budget_device_ms > 0)),
    CONSTRAINT jobs_check CHECK (((state = ANY (ARRAY['done'::public.job_state, 'failed'::public.job_state, 'cancelled'::public.job_state])) = (finished_at IS NOT NULL))),
    CONSTRAINT jobs_check1 CHECK (((state = 'failed'::public.job_state) <= (reason IS NOT NULL))),
    CONSTRAINT jobs_config_us_check CHECK ((config_us > 0)),
    CONSTRAINT jobs_configs_check CHECK ((configs > 0)),
    CONSTRAINT jobs_default_config_check CHECK ((default_config >= 0)),
    CONSTRAINT jobs_device_class_check CHECK ((octet_length(device_class) = 32)),
    CONSTRAINT jobs_final_devices_check CHECK (((final_devices >= 1) AND (final_devices <= 16))),
    CONSTRAINT jobs_key_digest_check CHECK ((octet_length(key_digest) = 32)),
    CONSTRAINT jobs_priority_check CHECK (((priority >= '-1000'::integer) AND (priority <= 1000))),
    CONSTRAINT jobs_round_check CHECK ((round >= 0)),
    CONSTRAINT jobs_search CHECK (((search_strategy IS NULL) = (search_trials IS NULL))),
    CONSTRAINT jobs_search_strategy_check CHECK ((search_strategy = ANY (ARRAY['random'::text, 'descent'::text, 'evolution'::text]))),
    CONSTRAINT jobs_search_trials_check CHECK ((search_trials > 0)),
    CONSTRAINT jobs_tag_check CHECK ((tag <> ''::text))
)
WITH (fillfactor='80');


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
    CONSTRAINT leases_check CHECK ((remaining <@ configs)),
    CONSTRAINT leases_check1 CHECK (((state <> 'held'::public.lease_state) OR ((agent IS NOT NULL) AND (device IS NOT NULL) AND (nonce IS NOT NULL) AND (expires_at IS NOT NULL) AND (NOT isempty(remaining))))),
    CONSTRAINT leases_check2 CHECK (((state <> 'open'::public.lease_state) OR (NOT isempty(remaining)))),
    CONSTRAINT leases_check3 CHECK (((state <> 'done'::public.lease_state) OR isempty(remaining))),
    CONSTRAINT leases_config_us_check CHECK ((config_us > 0)),
    CONSTRAINT leases_configs_check CHECK ((NOT isempty(configs)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='500', autovacuum_analyze_scale_factor='0.05');


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
    at timestamp with time zone DEFAULT now() NOT NULL
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
-- Name: release_fetches; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.release_fetches (
    release bytea NOT NULL,
    fetched_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');


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
    CONSTRAINT releases_check CHECK ((sha256(bytes) = digest)),
    CONSTRAINT releases_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT releases_environment_digest_check CHECK ((octet_length(environment_digest) = 32)),
    CONSTRAINT releases_tag_check CHECK ((tag <> ''::text)),
    CONSTRAINT releases_winners_check CHECK ((winners > 0))
);


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
-- Name: schema_migrations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.schema_migrations (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
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
-- Name: tokens; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.tokens (
    id bigint NOT NULL,
    name text NOT NULL,
    role public.token_role NOT NULL,
    digest bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    revoked_at timestamp with time zone,
    CONSTRAINT tokens_check CHECK ((revoked_at >= created_at)),
    CONSTRAINT tokens_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT tokens_name_check CHECK ((name ~ '^[A-Za-z0-9._-]{1,64}$'::text))
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
    CONSTRAINT winners_config_check CHECK ((config >= 0))
);


--
-- Data for Name: agents; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.agents (id, boot, name, version, drain_reason, enrolled_at, last_seen) FROM stdin;
464ac8ce3eb94c5511d4fb6e87fd7217	b1	worker	0.1.0	\N	2026-11-22 20:50:18.468225+00	2026-11-22 20:50:18.468225+00
2737e2be3b1c83a2e3d5551952867b8d	boot-half	half	0.1.0	\N	2026-11-22 20:50:18.957778+00	2026-11-22 20:50:18.957778+00
509b1e74b794dd603422e50e852f272a	boot-none	none	0.1.0	\N	2026-11-22 20:50:19.020166+00	2026-11-22 20:50:19.020166+00
\.


--
-- Data for Name: blob_chunks; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.blob_chunks (digest, ordinal, bytes) FROM stdin;
\\xb4bdf8d761d016783d66be539b9955d9659e355a9e8ae83b2bd561e5c1458d21	0	\\x28b52ffd202f790100766f6964206628666c6f6174202a792c206c6f6e67206c6f6e67206e29207b20795b6e202d20315d203d20313b207d
\\xd7f6b4f60e20eac74073fc65fc12ab2d8adcfaf95a02d2154c4f164026599d30	0	\\x28b52ffd20523d020032440f1880c51a0371b4c5247d8f8d6f18d88ac81b27c2a2eb602e34818fb4717172fc9cd3c83a715b1d7ccb0d58d0511c7e6a938dda8d6e064f29ec950b5c2602003af7475b96
\.


--
-- Data for Name: blobs; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.blobs (digest, size, created_at) FROM stdin;
\\xb4bdf8d761d016783d66be539b9955d9659e355a9e8ae83b2bd561e5c1458d21	47	2026-11-22 20:50:18.415122+00
\\xd7f6b4f60e20eac74073fc65fc12ab2d8adcfaf95a02d2154c4f164026599d30	82	2026-11-22 20:50:18.426833+00
\.


--
-- Data for Name: build_files; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.build_files (build, digest) FROM stdin;
\.


--
-- Data for Name: builds; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.builds (id, digest, kernel, arch, triton, torch, rocm, variants, build, created_at, head) FROM stdin;
\.


--
-- Data for Name: channel_entries; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.channel_entries (name, environment_digest, tag, counter, release, moved_by, moved_at, expires_at) FROM stdin;
stable	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	default	1	\\xf71a28ed60c553c872ff153f4744787f7255e11f7ff74167ff6990a9699d86d3	admin-14310679426459	2026-11-22 20:50:18.917582+00	\N
\.


--
-- Data for Name: channel_signatures; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.channel_signatures (name, environment_digest, tag, counter, key, signature, added_by, added_at) FROM stdin;
stable	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	default	1	\\x8a65c9173aebf2f2c8c68ab4c438a0aa8371732347c7c23887007cef18b19c24	rwwjAEVTH6UPuqwe3XMQddLAthAJMk4MHX5QqUq7cXjNWBayT7TsHcwL8lzLRGuLfDUPxouh3cnQ3YpIbwehAA==	admin-14310679426459	2026-11-22 20:50:18.917582+00
\.


--
-- Data for Name: channels; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.channels (id, name, environment_digest, tag, release, counter, updated_at, signings) FROM stdin;
1	stable	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	default	\\xf71a28ed60c553c872ff153f4744787f7255e11f7ff74167ff6990a9699d86d3	1	2026-11-22 20:50:18.917582+00	0
\.


--
-- Data for Name: compatibilities; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.compatibilities (id, asked, served, reason, made_by, made_at) FROM stdin;
\.


--
-- Data for Name: demand; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.demand (id, kernel, key_digest, key, environment_digest, environment, tag, hits, misses, tuning_ms, kernel_ms, first_at, last_at, job_id, refused, decided_at) FROM stdin;
\.


--
-- Data for Name: device_baselines; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.device_baselines (agent, device, subject, at, lease_id, epoch, median_us) FROM stdin;
464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	\\x1b26d6bf61f01410fd0d179c9f590fbaa4180f8157a3a942cb4761d264caae3c	2026-11-22 20:50:18.580225+00	1	1	100
464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	\\x83cfbedd16d3aea3a56a39d98914aeb2cc6d279f07e7115f1be6d7e6f4efc3bf	2026-11-22 20:50:18.619584+00	2	1	100
464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	\\x83cfbedd16d3aea3a56a39d98914aeb2cc6d279f07e7115f1be6d7e6f4efc3bf	2026-11-22 20:50:18.653783+00	3	1	100
464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	\\x83cfbedd16d3aea3a56a39d98914aeb2cc6d279f07e7115f1be6d7e6f4efc3bf	2026-11-22 20:50:18.687181+00	4	1	100
\.


--
-- Data for Name: devices; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.devices (agent, device, backend, environment_id, facts, drain_reason, suspect_since, history_since) FROM stdin;
464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	cpu	1	{}	\N	\N	\N
2737e2be3b1c83a2e3d5551952867b8d	cpu0	cpu	1	{}	\N	\N	\N
509b1e74b794dd603422e50e852f272a	cpu0	cpu	1	{}	\N	\N	\N
\.


--
-- Data for Name: environments; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.environments (id, digest, hardware_digest, identity) FROM stdin;
1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	{"arch":"x86_64","compute_units":4,"cpu":"gcc 1","gpu":"Test CPU","partition":""}
\.


--
-- Data for Name: images; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.images (digest, identity, put_by, put_at) FROM stdin;
\.


--
-- Data for Name: imports; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.imports (id, kernel, key_digest, key, environment_digest, environment, tag, config, ms, provenance, format, imported_by, imported_at) FROM stdin;
1	\\xe0c909bdd6be11aa4d539e3b4c8c50d00a2213ae213c64ec5008e5bbea7c467b	\\x00e1a00c021ae3eec22ee6858d8672c2d9c10f30918f8b6a6c57e7e5f8c48e4b	{"n":4096}	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	{"arch":"x86_64","compute_units":4,"cpu":"gcc 1","gpu":"Test CPU","partition":""}	default	{"B":1}	{0.2}	{}	dejavu	admin-14310679426459	2026-11-22 20:50:18.933714+00
\.


--
-- Data for Name: job_events; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.job_events (job_id, event, kind, at, detail) FROM stdin;
1	1	queued	2026-11-22 20:50:18.495568+00	{}
1	2	running	2026-11-22 20:50:18.541878+00	{}
1	3	stage	2026-11-22 20:50:18.593752+00	{"configs":[0,1,2],"processes":3,"round":0,"stage":"final"}
1	4	done	2026-11-22 20:50:18.696126+00	{"winner":0}
2	1	queued	2026-11-22 20:50:18.732901+00	{}
2	2	running	2026-11-22 20:50:18.761409+00	{}
2	3	failed	2026-11-22 20:50:18.784467+00	{"reason":"none of 3 configs was measured correctly (compile 3); one of them: because"}
3	1	queued	2026-11-22 20:50:18.801284+00	{}
3	2	cancelled	2026-11-22 20:50:18.806043+00	{}
4	1	queued	2026-11-22 20:50:18.950461+00	{}
4	2	running	2026-11-22 20:50:18.985626+00	{}
5	1	queued	2026-11-22 20:50:19.042627+00	{}
\.


--
-- Data for Name: jobs; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.jobs (id, kernel, key, key_digest, space_digest, environment_id, tag, run, state, stage, round, priority, budget_device_ms, baseline, seed, configs, runner, build, device_class, events, reason, created_at, finished_at, baseline_from, default_config, config_us, best_ratio, likely, search_strategy, search_trials, final_devices) FROM stdin;
1	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	{"n":64}	\\x59463b5b734b8fd57991beff973f24278cbf0a77b2d81edaeb9dd2b4fa0e1d2c	\\x03a3f8fd927871e357c3a924962fc9df3c16e369d7bd900505ac8500102ab654	1	default		done	final	0	0	\N	0	117677545040	3	build	\N	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	4	\N	2026-11-22 20:50:18.495568+00	2026-11-22 20:50:18.696126+00	first	\N	30000	1	{}	\N	\N	1
2	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	{"n":65}	\\x2c051cdbb8e8d2603fbb2b58b45423553857f91aaabadc4b104ed0da6562d162	\\x03a3f8fd927871e357c3a924962fc9df3c16e369d7bd900505ac8500102ab654	1	default		failed	screen	0	0	\N	0	236260140403047	3	build	\N	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	3	none of 3 configs was measured correctly (compile 3); one of them: because	2026-11-22 20:50:18.732901+00	2026-11-22 20:50:18.784467+00	first	\N	30000	\N	{0}	\N	\N	1
3	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	{"n":66}	\\x2ac775eae1a6ead6a8577b3424f81ac76b4e1cf36cb97f04c4718cc5c89cfb95	\\x03a3f8fd927871e357c3a924962fc9df3c16e369d7bd900505ac8500102ab654	1	default		cancelled	screen	0	0	\N	0	103018434536556	3	build	\N	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	2	\N	2026-11-22 20:50:18.801284+00	2026-11-22 20:50:18.806043+00	first	\N	30000	\N	{}	\N	\N	1
4	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	{"n":67}	\\xb7ec4606ebc4609ba1dbed05c8ddd34443537d6e9977e16fd70c8db47b495ada	\\x915056989b739b7244281c1cdb404d91d0161dd0f48a0b8532b9ed66b736c350	1	default		running	screen	0	0	\N	0	84391552338848	24	build	\N	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	2	\N	2026-11-22 20:50:18.950461+00	\N	first	\N	30000	1	{1}	\N	\N	1
5	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	{"n":68}	\\x1386c1e89cb123869c7c0e912fc06e2deae8283927bbb8e8cddbb751f3105157	\\x03a3f8fd927871e357c3a924962fc9df3c16e369d7bd900505ac8500102ab654	1	default		queued	screen	0	-5	60000	0	177638861867000	3	build	\N	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	1	\N	2026-11-22 20:50:19.042627+00	\N	first	\N	30000	\N	{}	\N	\N	1
\.


--
-- Data for Name: kernel_files; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.kernel_files (kernel, digest) FROM stdin;
\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	\\xb4bdf8d761d016783d66be539b9955d9659e355a9e8ae83b2bd561e5c1458d21
\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	\\xd7f6b4f60e20eac74073fc65fc12ab2d8adcfaf95a02d2154c4f164026599d30
\.


--
-- Data for Name: kernels; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.kernels (id, hash, name, language, manifest, created_at) FROM stdin;
1	\\x6d73b97d0b49a8f99d80df8c36f680e5b9261cc97d205d04c4e2301cf97081ef	test/leases	c	{"name":"test/leases","language":"c","entry":"f","sources":[{"path":"f.c","digest":"sha256:b4bdf8d761d016783d66be539b9955d9659e355a9e8ae83b2bd561e5c1458d21"}],"key":["n"],"arguments":[{"name":"y","dtype":"float32","shape":["n"],"access":"write"},{"name":"n","dtype":"int64","value":"n"}],"reference":{"source":{"path":"r.c","digest":"sha256:d7f6b4f60e20eac74073fc65fc12ab2d8adcfaf95a02d2154c4f164026599d30"},"outputs":{"y":"f_at"},"rtol":0.0,"atol":0.0,"samples":0}}	2026-11-22 20:50:18.437909+00
2	\\xe0c909bdd6be11aa4d539e3b4c8c50d00a2213ae213c64ec5008e5bbea7c467b	dejavu/x	external	{"name":"dejavu/x","language":"external","key":["n"],"exports":{"dejavu":{}}}	2026-11-22 20:50:18.933714+00
\.


--
-- Data for Name: leases; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.leases (id, job_id, stage, round, process, configs, remaining, state, epoch, device_class, priority, avoid_agents, agent, device, nonce, granted_at, expires_at, current_config, posts, fruitless, device_us, outcomes, config_us, is_split, apart_until) FROM stdin;
1	1	screen	0	0	{[0,3)}	{}	done	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	n0	2026-11-22 20:50:18.517393+00	2026-11-22 21:00:18.530296+00	\N	1	0	90000	{3,0,0,0,0,0}	\N	f	\N
2	1	final	0	0	{[0,3)}	{}	done	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	n1	2026-11-22 20:50:18.600048+00	2026-11-22 21:00:18.603391+00	\N	1	0	90000	{3,0,0,0,0,0}	\N	f	\N
3	1	final	0	1	{[0,3)}	{}	done	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	n2	2026-11-22 20:50:18.629033+00	2026-11-22 21:00:18.632903+00	\N	1	0	90000	{3,0,0,0,0,0}	\N	f	\N
4	1	final	0	2	{[0,3)}	{}	done	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	n3	2026-11-22 20:50:18.662001+00	2026-11-22 21:00:18.667988+00	\N	1	0	90000	{3,0,0,0,0,0}	\N	f	\N
5	2	screen	0	0	{[0,3)}	{}	done	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	n5	2026-11-22 20:50:18.747545+00	2026-11-22 21:00:18.750852+00	\N	1	0	90000	{0,3,0,0,0,0}	\N	f	\N
6	3	screen	0	0	{[0,3)}	{[0,3)}	cancelled	0	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	\N	\N	\N	\N	\N	\N	0	0	0	{0,0,0,0,0,0}	\N	f	\N
9	4	screen	0	0	{[16,24)}	{[16,24)}	open	0	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	\N	\N	\N	\N	\N	\N	0	0	0	{0,0,0,0,0,0}	\N	f	\N
7	4	screen	0	0	{[0,8)}	{[4,8)}	held	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	2737e2be3b1c83a2e3d5551952867b8d	cpu0	n7	2026-11-22 20:50:18.968279+00	2026-11-22 21:00:18.976921+00	\N	1	0	4000	{4,0,0,0,0,0}	\N	f	\N
8	4	screen	0	0	{[8,16)}	{[8,16)}	held	1	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	0	{}	509b1e74b794dd603422e50e852f272a	cpu0	n8	2026-11-22 20:50:19.026368+00	2026-11-22 21:00:19.03391+00	\N	0	1	0	{0,0,0,0,0,0}	\N	f	\N
10	5	screen	0	0	{[0,3)}	{[0,3)}	open	0	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	-5	{}	\N	\N	\N	\N	\N	\N	0	0	0	{0,0,0,0,0,0}	\N	f	\N
\.


--
-- Data for Name: losses; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.losses (id, job_id, config, lease_id, epoch, agent, device, at) FROM stdin;
\.


--
-- Data for Name: measurement_objects; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.measurement_objects (job_id, measurement, object) FROM stdin;
\.


--
-- Data for Name: measurements; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.measurements (id, job_id, lease_id, epoch, seq, body_digest, config, stage, round, process, agent, device, outcome, detail, timer, regime, samples_us, baseline_us, ratio, clock_mhz, compile_ms, device_us, vgprs, agprs, spills, lds_bytes, occupancy, late, at, conditions, "end", quarantined) FROM stdin;
1	1	1	1	1	\\x97eeb8cd8934880ec5205a560a44fa5f5bdbac14a23ae7b9a1d1e865ae15547d	0	screen	0	0	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.552749+00	\N	\N	f
2	1	1	1	2	\\x14e4307419eac4ff6f0135bf43ff1b3ceb7985dc12b3e3ceed158f4ae97414b3	1	screen	0	0	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	correct	\N	\N	cold	{101,101,101,101,101}	{100,100,100,100,100}	1.01	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.552749+00	\N	\N	f
3	1	1	1	3	\\x0dc2df8d792bccc4b65a0fddb496da327f37939deeaa38f193a84c83fd52ae6d	2	screen	0	0	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	correct	\N	\N	cold	{102,102,102,102,102}	{100,100,100,100,100}	1.02	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.552749+00	\N	\N	f
4	1	2	1	4	\\x97dc3e72894e11970176aaaf4219ca3118fa6de6f791ad9a0053780267aac4be	0	final	0	0	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.609899+00	\N	\N	f
5	1	2	1	5	\\x9de8749c6d38612adc630eb3b34be24c2e572e308cefc72f96e69deb3433ba08	1	final	0	0	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	correct	\N	\N	cold	{101,101,101,101,101}	{100,100,100,100,100}	1.01	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.609899+00	\N	\N	f
6	1	2	1	6	\\xbedb4281e104dfd31cf847dda349512656a9f41fe3d564f8928cf2193da761b5	2	final	0	0	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	correct	\N	\N	cold	{102,102,102,102,102}	{100,100,100,100,100}	1.02	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.609899+00	\N	\N	f
7	1	3	1	7	\\x8e6ffe7713f4ded3550d08635b792d93bfea0ed4d40282f42c1d57745cb038a6	0	final	0	1	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.636812+00	\N	\N	f
8	1	3	1	8	\\xa329aabe521cca21d361bed0fec28009f294361c49c4d37cba5f495bdaaeff97	1	final	0	1	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	correct	\N	\N	cold	{101,101,101,101,101}	{100,100,100,100,100}	1.01	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.636812+00	\N	\N	f
9	1	3	1	9	\\x4dd0a72c4e65d65696153e410cdaa8a0fffae912699076e273064563e92ec302	2	final	0	1	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	correct	\N	\N	cold	{102,102,102,102,102}	{100,100,100,100,100}	1.02	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.636812+00	\N	\N	f
10	1	4	1	10	\\xf53bea3723d2b93138a9226f6a1bf0d02e4830a452f747091359a2700b4f70a8	0	final	0	2	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.677528+00	\N	\N	f
11	1	4	1	11	\\x83e950b6f00ea3f44e8e9e96293c4c615b725ee1b7f8cc55ce1af4cb206ef3e0	1	final	0	2	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	correct	\N	\N	cold	{101,101,101,101,101}	{100,100,100,100,100}	1.01	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.677528+00	\N	\N	f
12	1	4	1	12	\\xc1478d43f48bf3b8a5d59a5dbe48fe3099f1a0ced463c1ca4a9b47caded9e161	2	final	0	2	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	correct	\N	\N	cold	{102,102,102,102,102}	{100,100,100,100,100}	1.02	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.677528+00	\N	\N	f
13	2	5	1	13	\\x4e0bc7685e07767767cd4913a4d0e07db2047d9da6f162cf5aaa5589ab591154	0	screen	0	0	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	compile	because	\N	cold	{}	{}	\N	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.76412+00	\N	\N	f
14	2	5	1	14	\\x6f888dab96f2e3b1ad9813b75072248f87eeb88f4cc5d66ef760e9fb001bd67c	1	screen	0	0	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	compile	because	\N	cold	{}	{}	\N	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.76412+00	\N	\N	f
15	2	5	1	15	\\xfc5c6f30c912387e63389d162990ebb04deda048f315b33663d341d1e70a4cc6	2	screen	0	0	464ac8ce3eb94c5511d4fb6e87fd7217	cpu0	compile	because	\N	cold	{}	{}	\N	\N	\N	30000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:18.76412+00	\N	\N	f
16	4	7	1	1	\\xd011c32b1407646f435319db96e1ec654558df7e416a951aa610ef164da3bbb9	0	screen	0	0	2737e2be3b1c83a2e3d5551952867b8d	cpu0	correct	\N	\N	cold	{100,100,100,100,100}	{100,100,100,100,100}	1	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:19.001119+00	\N	\N	f
17	4	7	1	2	\\x995123b52e52998f702fb5f34d7694a4dc46f6f667a3714e4fae742ec4712596	1	screen	0	0	2737e2be3b1c83a2e3d5551952867b8d	cpu0	correct	\N	\N	cold	{101,101,101,101,101}	{100,100,100,100,100}	1.01	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:19.001119+00	\N	\N	f
18	4	7	1	3	\\xd3e1b6ab76802de3bc75f2155d9e1d57e070ccc571b5fa1ce2bcdef851c168af	2	screen	0	0	2737e2be3b1c83a2e3d5551952867b8d	cpu0	correct	\N	\N	cold	{102,102,102,102,102}	{100,100,100,100,100}	1.02	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:19.001119+00	\N	\N	f
19	4	7	1	4	\\xa6f577cfd45df5a27065cbb313165a4836f89c6001e053b0c9eb2f8a1c942352	3	screen	0	0	2737e2be3b1c83a2e3d5551952867b8d	cpu0	correct	\N	\N	cold	{103,103,103,103,103}	{100,100,100,100,100}	1.03	\N	\N	1000	\N	\N	\N	\N	\N	f	2026-11-22 20:50:19.001119+00	\N	\N	f
\.


--
-- Data for Name: release_fetches; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.release_fetches (release, fetched_at) FROM stdin;
\.


--
-- Data for Name: releases; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.releases (id, digest, environment_digest, environment, tag, winners, bytes, created_at) FROM stdin;
1	\\xf71a28ed60c553c872ff153f4744787f7255e11f7ff74167ff6990a9699d86d3	\\xcf7a78a14b985f15cb727422fc823bd0c7b165c97d6353ed7afaa2dfd2dd9bd4	{"arch":"x86_64","compute_units":4,"cpu":"gcc 1","gpu":"Test CPU","partition":""}	default	1	\\x7b22656e7669726f6e6d656e74223a7b2261726368223a227838365f3634222c22636f6d707574655f756e697473223a342c22637075223a226763632031222c22677075223a225465737420435055222c22706172746974696f6e223a22227d2c226b65726e656c73223a5b7b22636f6e66696773223a5b7b226f7264696e616c223a302c227370616365223a227368613235363a30336133663866643932373837316533353763336139323439363266633964663363313665333639643762643930303530356163383530303130326162363534222c2276616c756573223a7b2241223a317d7d5d2c226b65726e656c223a227368613235363a36643733623937643062343961386639396438306466386333366636383065356239323631636339376432303564303463346532333031636639373038316566222c226b6579223a5b226e225d2c226e616d65223a22746573742f6c6561736573222c2270726f76656e616e6365223a5b7b226f726967696e223a2274756e6564227d5d2c2277696e6e657273223a5b5b5b36345d2c302c302c5b302e315d2c315d5d7d5d2c22746167223a2264656661756c74222c2276657273696f6e223a327d	2026-11-22 20:50:18.821+00
\.


--
-- Data for Name: schema_migrations; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.schema_migrations (version, name, checksum, applied_at) FROM stdin;
1	base	sha256:abacc2a510d570f83b0bf51950415b36367c94b17206f5b8f8b08ec1cb9f18d7	2026-11-22 20:50:17.670054+00
2	jobs	sha256:a7a6896f6f6d4f4aecf067e9e4c0b3c4529f3e8beb62b9722a79aa7ceb534402	2026-11-22 20:50:17.715119+00
3	releases	sha256:bedb14269aef4c4b60b22b7996465bb177896aaf6480ef56683519893414b0b9	2026-11-22 20:50:17.793779+00
4	lease_order	sha256:3b8106330e83c403380b83f786eafeec9aa39e0696b0813ad017f7326effb9af	2026-11-22 20:50:17.820475+00
5	builds	sha256:afd8672101832b71512b39d3c4c918d60ed08ea0d9b09ddf919d063961861c1d	2026-11-22 20:50:17.828697+00
6	campaigns	sha256:d74f6ded4204cbb53a0542ce19aaeaa4079f946974d923e84cbc4d7cd3d59ee4	2026-11-22 20:50:17.838265+00
7	trust	sha256:058dc0122ccfbad2ddbe3eadc449f27bba903025b2f60708bfc0b849e3daf877	2026-11-22 20:50:17.856647+00
8	signatures	sha256:f2fcbc81d9da54fbf91d901bc2d45aabc13b554370f3f5f1a61e143cd3f0131d	2026-11-22 20:50:17.866266+00
9	imports	sha256:9a8edcdd3fd2ccd454c9cfe6ea9e1a48dee4292b22cb2f745e312a7618bc05e8	2026-11-22 20:50:17.874787+00
10	deployments	sha256:0c8871409bf5e78c9f6ecc70d276195cf16ec5d0bac4d67477340310ca6b7807	2026-11-22 20:50:17.892549+00
\.


--
-- Data for Name: spaces; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.spaces (digest, space) FROM stdin;
\\x03a3f8fd927871e357c3a924962fc9df3c16e369d7bd900505ac8500102ab654	{"parameters":{"A":[1,2,3]}}
\\x915056989b739b7244281c1cdb404d91d0161dd0f48a0b8532b9ed66b736c350	{"parameters":{"A":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23]}}
\.


--
-- Data for Name: tokens; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.tokens (id, name, role, digest, created_at, revoked_at) FROM stdin;
1	admin-14310679426459	admin	\\x65a883160278d029c6b720b18776d18ce16a63a58a47511f9a92dfbf0057d006	2026-11-22 20:50:18.078491+00	\N
2	the-admin	admin	\\xe1b836d0a9d108a10164d5aa288429aa8acb7b5b23148734e2693b54f4a86974	2026-11-22 20:50:18.180999+00	\N
3	the-reader	reader	\\x047316e19250cfe2140b88c8c40887f8575e749df060611aa7bae3884582843b	2026-11-22 20:50:18.237204+00	\N
4	the-submitter	submitter	\\xa84087c506370d0fcfe8adf03b2619900fa324ffb1e9094b50e697f140915119	2026-11-22 20:50:18.295978+00	\N
5	the-agent	agent	\\x2cb459345a33b7f432019765312acbc2c1fdb846cc3849d7435be61152e13811	2026-11-22 20:50:18.350715+00	\N
6	the-demand	demand	\\x7e8fbdbe395d9ff3cae928da259313ff273d63afc8624a79f6abf056efac9136	2026-11-22 20:50:18.401278+00	\N
\.


--
-- Data for Name: winners; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.winners (job_id, config, config_values, verdict, at, quarantined, flagged) FROM stdin;
1	0	{"A":1}	{"baseline_lower":1.0,"baseline_ratio":1.0,"baseline_upper":1.0,"baseline_us":100.0,"devices":1,"equivalence_set":[0,1,2],"finalists":[{"config":0,"equivalent":true,"lower":1.0,"median_us":100.0,"ratio":1.0,"upper":1.0,"winner_lower":1.0,"winner_ratio":1.0,"winner_upper":1.0},{"config":1,"equivalent":true,"lower":1.01,"median_us":101.0,"ratio":1.01,"upper":1.01,"winner_lower":0.99009901,"winner_ratio":0.99009901,"winner_upper":0.99009901},{"config":2,"equivalent":true,"lower":1.02,"median_us":102.0,"ratio":1.02,"upper":1.02,"winner_lower":0.980392157,"winner_ratio":0.980392157,"winner_upper":0.980392157}],"processes":3,"regret_bound":0.0,"samples":45,"speedup":1.0,"verdict":"SAME","winner":0,"winner_us":100.0}	2026-11-22 20:50:18.696126+00	\N	\N
\.


--
-- Name: builds_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.builds_id_seq', 1, false);


--
-- Name: channels_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.channels_id_seq', 1, true);


--
-- Name: compatibilities_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.compatibilities_id_seq', 1, false);


--
-- Name: demand_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.demand_id_seq', 1, false);


--
-- Name: environments_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.environments_id_seq', 1, true);


--
-- Name: imports_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.imports_id_seq', 1, true);


--
-- Name: jobs_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.jobs_id_seq', 5, true);


--
-- Name: kernels_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.kernels_id_seq', 2, true);


--
-- Name: leases_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.leases_id_seq', 10, true);


--
-- Name: losses_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.losses_id_seq', 1, false);


--
-- Name: measurements_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.measurements_id_seq', 19, true);


--
-- Name: releases_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.releases_id_seq', 1, true);


--
-- Name: tokens_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.tokens_id_seq', 6, true);


--
-- Name: agents agents_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.agents
    ADD CONSTRAINT agents_pkey PRIMARY KEY (id);


--
-- Name: blob_chunks blob_chunks_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.blob_chunks
    ADD CONSTRAINT blob_chunks_pkey PRIMARY KEY (digest, ordinal);


--
-- Name: blobs blobs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.blobs
    ADD CONSTRAINT blobs_pkey PRIMARY KEY (digest);


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
-- Name: channel_entries channel_entries_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channel_entries
    ADD CONSTRAINT channel_entries_pkey PRIMARY KEY (name, tag, environment_digest, counter);


--
-- Name: channel_signatures channel_signatures_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channel_signatures
    ADD CONSTRAINT channel_signatures_pkey PRIMARY KEY (name, tag, environment_digest, counter, key);


--
-- Name: channels channels_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channels
    ADD CONSTRAINT channels_id_key UNIQUE (id);


--
-- Name: channels channels_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channels
    ADD CONSTRAINT channels_pkey PRIMARY KEY (name, tag, environment_digest);


--
-- Name: compatibilities compatibilities_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.compatibilities
    ADD CONSTRAINT compatibilities_pkey PRIMARY KEY (id);


--
-- Name: demand demand_kernel_key_digest_environment_digest_tag_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.demand
    ADD CONSTRAINT demand_kernel_key_digest_environment_digest_tag_key UNIQUE (kernel, key_digest, environment_digest, tag);


--
-- Name: demand demand_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.demand
    ADD CONSTRAINT demand_pkey PRIMARY KEY (id);


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
    ADD CONSTRAINT job_events_kind_check CHECK ((kind = ANY (ARRAY['queued'::text, 'running'::text, 'stage'::text, 'lease_lost'::text, 'poisoned'::text, 'done'::text, 'failed'::text, 'cancelled'::text, 'budget'::text, 'late'::text, 'quarantined'::text, 'flagged'::text]))) NOT VALID;


--
-- Name: job_events job_events_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_events
    ADD CONSTRAINT job_events_pkey PRIMARY KEY (job_id, event);


--
-- Name: jobs jobs_baseline_from_check; Type: CHECK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE public.jobs
    ADD CONSTRAINT jobs_baseline_from_check CHECK ((baseline_from = ANY (ARRAY['incumbent'::text, 'imported'::text, 'default'::text, 'first'::text]))) NOT VALID;


--
-- Name: jobs jobs_kernel_key_digest_space_digest_environment_id_tag_run_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_kernel_key_digest_space_digest_environment_id_tag_run_key UNIQUE (kernel, key_digest, space_digest, environment_id, tag, run);


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
-- Name: measurements measurements_lease_id_epoch_seq_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT measurements_lease_id_epoch_seq_key UNIQUE (lease_id, epoch, seq);


--
-- Name: measurements measurements_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT measurements_pkey PRIMARY KEY (job_id, id);


--
-- Name: release_fetches release_fetches_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.release_fetches
    ADD CONSTRAINT release_fetches_pkey PRIMARY KEY (release);


--
-- Name: releases releases_digest_environment_digest_tag_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.releases
    ADD CONSTRAINT releases_digest_environment_digest_tag_key UNIQUE (digest, environment_digest, tag);


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
-- Name: schema_migrations schema_migrations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);


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
-- Name: build_files_digest; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX build_files_digest ON public.build_files USING btree (digest);


--
-- Name: builds_kernel; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX builds_kernel ON public.builds USING btree (kernel, id);


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

CREATE INDEX jobs_done ON public.jobs USING btree (environment_id, tag, kernel, key_digest, id) WHERE (state = 'done'::public.job_state);


--
-- Name: jobs_kernel_done; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_kernel_done ON public.jobs USING btree (kernel, id) WHERE (state = 'done'::public.job_state);


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

CREATE INDEX leases_open ON public.leases USING btree (device_class, priority DESC, job_id, id) WHERE (state = 'open'::public.lease_state);


--
-- Name: leases_splittable; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX leases_splittable ON public.leases USING btree (device_class) WHERE ((state = 'held'::public.lease_state) AND (config_us IS NOT NULL));


--
-- Name: losses_config; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX losses_config ON public.losses USING btree (job_id, config);


--
-- Name: measurement_objects_object; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX measurement_objects_object ON public.measurement_objects USING btree (object);


--
-- Name: measurements_once; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX measurements_once ON public.measurements USING btree (job_id, stage, round, process, config) WHERE (NOT late);


--
-- Name: tokens_live_name; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX tokens_live_name ON public.tokens USING btree (name) WHERE (revoked_at IS NULL);


--
-- Name: channels channel_counter_grows; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER channel_counter_grows BEFORE DELETE OR UPDATE ON public.channels FOR EACH ROW EXECUTE FUNCTION public.channel_counter_grows();


--
-- Name: channel_entries channel_entries_append_only; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER channel_entries_append_only BEFORE DELETE OR UPDATE ON public.channel_entries FOR EACH ROW EXECUTE FUNCTION public.append_only();


--
-- Name: releases releases_are_immutable; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER releases_are_immutable BEFORE UPDATE ON public.releases FOR EACH ROW EXECUTE FUNCTION public.append_only();


--
-- Name: blob_chunks blob_chunks_digest_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.blob_chunks
    ADD CONSTRAINT blob_chunks_digest_fkey FOREIGN KEY (digest) REFERENCES public.blobs(digest) ON DELETE CASCADE;


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
-- Name: channel_signatures channel_signatures_name_tag_environment_digest_counter_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channel_signatures
    ADD CONSTRAINT channel_signatures_name_tag_environment_digest_counter_fkey FOREIGN KEY (name, tag, environment_digest, counter) REFERENCES public.channel_entries(name, tag, environment_digest, counter);


--
-- Name: channels channels_release_environment_digest_tag_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channels
    ADD CONSTRAINT channels_release_environment_digest_tag_fkey FOREIGN KEY (release, environment_digest, tag) REFERENCES public.releases(digest, environment_digest, tag);


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
-- Name: measurement_objects measurement_objects_job_id_measurement_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurement_objects
    ADD CONSTRAINT measurement_objects_job_id_measurement_fkey FOREIGN KEY (job_id, measurement) REFERENCES public.measurements(job_id, id) ON DELETE CASCADE;


--
-- Name: measurement_objects measurement_objects_object_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurement_objects
    ADD CONSTRAINT measurement_objects_object_fkey FOREIGN KEY (object) REFERENCES public.blobs(digest);


--
-- Name: measurements measurements_lease_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT measurements_lease_id_fkey FOREIGN KEY (lease_id) REFERENCES public.leases(id);


--
-- Name: release_fetches release_fetches_release_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.release_fetches
    ADD CONSTRAINT release_fetches_release_fkey FOREIGN KEY (release) REFERENCES public.releases(digest) ON DELETE CASCADE;


--
-- Name: winners winners_job_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.winners
    ADD CONSTRAINT winners_job_id_fkey FOREIGN KEY (job_id) REFERENCES public.jobs(id);


--
-- PostgreSQL database dump complete
--


