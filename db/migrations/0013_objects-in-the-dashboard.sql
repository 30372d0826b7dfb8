-- The keys to which stored objects belong, the costs of batches and the hits of the response cache. New columns are null or
-- have a constant default, so adding them rewrites no table. The indexes on keys have no entry for older rows, so building
-- them only reads the tables.

-- Instances cannot send heartbeats while this transaction runs, so it waits for locks a short time only.
SET LOCAL lock_timeout = '1s';

-- Comes first, because every transaction of an instance locks this table first.
LOCK TABLE instances IN EXCLUSIVE MODE;

ALTER TABLE "batches" ADD COLUMN "cost_nano" bigint DEFAULT 0 NOT NULL;
ALTER TABLE "batches" ADD COLUMN "costed_lines" integer DEFAULT 0 NOT NULL;
ALTER TABLE "files" ADD COLUMN "key_id" text;
ALTER TABLE "answer_caches" ADD COLUMN "hits" bigint DEFAULT 0 NOT NULL;
ALTER TABLE "answer_caches" ADD COLUMN "saved_nano" bigint DEFAULT 0 NOT NULL;
ALTER TABLE "cached_answers" ADD COLUMN "hits" integer DEFAULT 0 NOT NULL;
ALTER TABLE "conversations" ADD COLUMN "key_id" text;
ALTER TABLE "responses" ADD COLUMN "key_id" text;
ALTER TABLE "vector_stores" ADD COLUMN "key_id" text;
CREATE INDEX "batches_of_key" ON "batches" USING btree ("key_id","id" COLLATE "C");
CREATE INDEX "files_of_key" ON "files" USING btree ("key_id","id" COLLATE "C") WHERE key_id IS NOT NULL;
CREATE INDEX "fine_tuning_jobs_of_key" ON "fine_tuning_jobs" USING btree ("key_id","created_at","id");
CREATE INDEX "conversations_of_key" ON "conversations" USING btree ("key_id","id" COLLATE "C") WHERE key_id IS NOT NULL;
CREATE INDEX "responses_listing" ON "responses" USING btree ("organization_id","id" COLLATE "C") WHERE key_id IS NOT NULL;
CREATE INDEX "responses_of_key" ON "responses" USING btree ("key_id","id" COLLATE "C") WHERE key_id IS NOT NULL;
CREATE INDEX "vector_store_files_failed" ON "vector_store_files" USING btree ("organization_id","id" COLLATE "C") WHERE status = 'failed';
CREATE INDEX "vector_stores_of_key" ON "vector_stores" USING btree ("key_id","id" COLLATE "C") WHERE key_id IS NOT NULL;
