-- Returns how long an instance counts as alive after its last heartbeat, by this server's clock. INSTANCE_LEASE_MS in
-- db/queries/instances.ts has the same value.
--
-- Called by the view live_instances, claim_leases, and db/queries/instances.ts.
CREATE OR REPLACE FUNCTION instance_lease() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '3 seconds' $$;
