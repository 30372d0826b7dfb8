CREATE TABLE "file_stores" (
	"kind" text PRIMARY KEY NOT NULL,
	"id" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
