-- The models that the lines of a batch name. The new column is null, so adding it rewrites no table.

-- Instances cannot send heartbeats while this transaction runs, so it waits for locks a short time only.
SET LOCAL lock_timeout = '1s';

-- Comes first, because every transaction of an instance locks this table first.
LOCK TABLE instances IN EXCLUSIVE MODE;

ALTER TABLE "batches" ADD COLUMN "models" text[];
