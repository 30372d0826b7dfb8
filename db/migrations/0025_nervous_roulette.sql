CREATE TABLE "vector_store_vectors" (
	"file" bigint NOT NULL,
	"position" integer NOT NULL,
	"signs" "varbit" NOT NULL,
	"bytes" "bytea" NOT NULL,
	"scale" real NOT NULL,
	CONSTRAINT "vector_store_vectors_file_position_pk" PRIMARY KEY("file","position")
);
--> statement-breakpoint
ALTER TABLE "vector_store_files" ADD COLUMN "key_id" text;--> statement-breakpoint
ALTER TABLE "vector_store_files" ADD COLUMN "embedding_model" text;--> statement-breakpoint
ALTER TABLE "vector_store_vectors" ADD CONSTRAINT "vector_store_vectors_chunk_fk" FOREIGN KEY ("file","position") REFERENCES "public"."vector_store_chunks"("file","position") ON DELETE cascade ON UPDATE no action;
--> statement-breakpoint
-- The bytes lie apart from the signs, which a search reads all of.
ALTER TABLE "vector_store_vectors" ALTER COLUMN "signs" SET STORAGE PLAIN;--> statement-breakpoint
ALTER TABLE "vector_store_vectors" ALTER COLUMN "bytes" SET STORAGE EXTERNAL;--> statement-breakpoint
ALTER TABLE "vector_store_vectors" SET (toast_tuple_target = 128);
