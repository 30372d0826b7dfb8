-- Sums of use by units that the roll-up has no column for. The new columns are null, so adding them rewrites no table.

-- Instances cannot send heartbeats while this transaction runs, so it waits for locks a short time only.
SET LOCAL lock_timeout = '1s';

-- Comes first, because every transaction of an instance locks this table first.
LOCK TABLE instances IN EXCLUSIVE MODE;

ALTER TABLE "usage_rollups" ADD COLUMN "quantities" jsonb;
ALTER TABLE "usage_subjects" ADD COLUMN "quantities" jsonb;
ALTER TABLE "usage_totals" ADD COLUMN "quantities" jsonb;

-- Sums with usage_add_quantities(state, value), and skips null. Returns null if all values are null.
CREATE AGGREGATE usage_sum_quantities(jsonb) (
  SFUNC = usage_add_quantities, STYPE = jsonb, COMBINEFUNC = usage_add_quantities, PARALLEL = SAFE
);
