CREATE TABLE "conversations" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"metadata" jsonb NOT NULL,
	"last_id" text,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "removed_items" (
	"conversation_id" text NOT NULL,
	"item_id" text NOT NULL,
	CONSTRAINT "removed_items_conversation_id_item_id_pk" PRIMARY KEY("conversation_id","item_id")
);
--> statement-breakpoint
ALTER TABLE "conversations" ADD CONSTRAINT "conversations_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "removed_items" ADD CONSTRAINT "removed_items_conversation_id_conversations_id_fk" FOREIGN KEY ("conversation_id") REFERENCES "public"."conversations"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "conversations_organization" ON "conversations" USING btree ("organization_id");--> statement-breakpoint
-- Adds a response of which all contents are written behind the last one of a conversation. Turns that run at once so
-- stand in the order in which their charges are written. False where there is no such conversation any more.
CREATE FUNCTION append_to_conversation(p_id text, p_conversation_id text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  v_last text;
BEGIN
  SELECT last_id INTO v_last FROM conversations WHERE id = p_conversation_id FOR UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE responses SET previous_id = v_last, chain_id = p_conversation_id, remove_after = 'infinity',
    chain_bytes = own_bytes + coalesce((SELECT b.chain_bytes FROM responses b WHERE b.id = v_last), 0)
  WHERE id = p_id;
  UPDATE conversations SET last_id = p_id WHERE id = p_conversation_id;
  RETURN true;
END
$$;
--> statement-breakpoint
-- Makes responses visible in the transaction of their charges, and part of their conversations. Raises GW004 where one
-- of them is not there, because the server has crashed between the commit that wrote it, which need not wait for the
-- disk, and this.
CREATE OR REPLACE FUNCTION keep_responses(p_kept jsonb, p_removed_after interval) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  v_count integer;
BEGIN
  UPDATE responses r SET is_kept = true, own_bytes = k.own_bytes, chain_bytes = k.chain_bytes,
    created_at = clock_timestamp(), remove_after = clock_timestamp() + p_removed_after
  FROM jsonb_to_recordset(p_kept) AS k (id text, own_bytes integer, chain_bytes bigint)
  WHERE r.id = k.id;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  IF v_count < jsonb_array_length(p_kept) THEN
    RAISE EXCEPTION 'a response is not there to be kept' USING ERRCODE = 'GW004';
  END IF;
  -- In one order everywhere, so that two transactions never wait for one another.
  PERFORM append_to_conversation(k.id, k.conversation_id)
  FROM (SELECT id, conversation_id FROM jsonb_to_recordset(p_kept) AS k (id text, conversation_id text)
    WHERE conversation_id IS NOT NULL ORDER BY conversation_id, id) AS k;
  RETURN v_count;
END
$$;
--> statement-breakpoint
-- Deletes a conversation; what it consists of is kept for as long as any response. A turn that was added while this
-- waited is seen: each statement has a snapshot of its own.
CREATE FUNCTION delete_conversation(p_id text, p_organization_id text, p_kept interval) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM conversations WHERE id = p_id AND organization_id = p_organization_id;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE responses SET remove_after = clock_timestamp() + p_kept
  WHERE chain_id = p_id AND remove_after = 'infinity';
  RETURN true;
END
$$;
