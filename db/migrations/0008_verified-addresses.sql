-- The time at which an address was verified. The new column is null, so adding it rewrites no table.

ALTER TABLE "people" ADD COLUMN "email_verified_at" timestamp with time zone;
