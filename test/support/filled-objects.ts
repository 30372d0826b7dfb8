import type { Database } from "../../db/client.ts";
import { subjectDayAccountId, subjectMonthAccountId } from "../../db/ledger/rows.ts";
import { newId } from "../../src/lib/ids.ts";
import { utcDay, utcMonth } from "../../src/lib/utc-time.ts";
import { testKeyring } from "./master-key.ts";

/** The organization to fill, and the keys that created its objects. */
export interface ObjectFilling {
  readonly organizationId: string;
  readonly keyIds: readonly string[];
  readonly nowMs: number;
  /** Is put into every name that someone else has chosen. */
  readonly mark: string;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Stored objects in every state: files, vector stores, jobs, responses, conversations, budgets and a cache. */
export async function fillObjects(sql: Database, filling: ObjectFilling): Promise<void> {
  const fileIds = await addFiles(sql, filling);
  await addVectorStores(sql, filling, fileIds);
  await addJobs(sql, filling, fileIds);
  await addFailingBatch(sql, filling);
  await addResponses(sql, filling);
  await addBudgets(sql, filling);
  await addCache(sql, filling);
}

const keyAt = ({ keyIds }: ObjectFilling, at: number) => keyIds[at % keyIds.length]!;

async function addFiles(sql: Database, filling: ObjectFilling): Promise<string[]> {
  const { organizationId, nowMs, mark } = filling;
  const files = [
    ["requests-october.jsonl", "batch", 4_182_331, "processed", null],
    ["batch_output.jsonl", "batch_output", 9_120_044, "processed", null],
    ["support-conversations.jsonl", "fine-tune", 812_400, "processed", null],
    [
      "step_metrics.csv",
      "fine-tune-results",
      0,
      "error",
      "The organization's storage quota has no room for the file.",
    ],
    ["handbook.pdf", "assistants", 2_402_113, "processed", null],
    ["prices-2026.docx", "assistants", 88_211, "processed", null],
    ["scan.png", "vision", 401_002, "processed", null],
  ] as const;
  const ids: string[] = [];
  for (const [at, [name, purpose, bytes, status, details]] of files.entries()) {
    const id = newId("file");
    await sql`INSERT INTO files (id, organization_id, key_id, filename, purpose, content_type, bytes, status,
        status_details, created_at, expires_at)
      VALUES (${id}, ${organizationId}, ${keyAt(filling, at)}, ${name + mark}, ${purpose},
        'application/octet-stream', ${bytes}, ${status}, ${details}, ${new Date(nowMs - (9 - at) * DAY_MS)},
        ${purpose === "vision" ? new Date(nowMs + DAY_MS) : null})`;
    ids.push(id);
  }
  const used = files.reduce((sum, [, , bytes]) => sum + bytes, 0);
  await sql`INSERT INTO file_usage (organization_id, used_bytes) VALUES (${organizationId}, ${used})
    ON CONFLICT (organization_id) DO UPDATE SET used_bytes = EXCLUDED.used_bytes`;
  return ids;
}

async function addVectorStores(
  sql: Database,
  filling: ObjectFilling,
  fileIds: readonly string[],
): Promise<void> {
  const { organizationId, nowMs, mark } = filling;
  for (const [at, name] of ["Handbook", "Prices", null].entries()) {
    const id = newId("vs");
    const created = new Date(nowMs - (7 - at) * DAY_MS);
    await sql`INSERT INTO vector_stores (id, organization_id, key_id, name, expires_after_days, created_at,
        last_active_at, expires_at)
      VALUES (${id}, ${organizationId}, ${keyAt(filling, at)}, ${name && name + mark}, ${at === 1 ? 30 : null},
        ${created}, ${new Date(nowMs - at * HOUR_MS)}, ${at === 1 ? new Date(nowMs + 20 * DAY_MS) : null})`;
    for (const [place, fileId] of fileIds.slice(3, 7 - 2 * at).entries()) {
      const isFailed = place === 0;
      await sql`INSERT INTO vector_store_files (id, organization_id, vector_store_id, file_id, status, error_code,
          error_message, attributes, max_chunk_tokens, overlap_tokens, chunks, usage_bytes, created_at)
        VALUES (${newId("vsf")}, ${organizationId}, ${id}, ${fileId}, ${isFailed ? "failed" : "completed"},
          ${isFailed ? "invalid_file" : null}, ${isFailed ? `The file has no text.${mark}` : null}, '{}', 800, 400,
          ${isFailed ? 0 : 40}, ${isFailed ? 0 : 120_000}, ${new Date(nowMs - HOUR_MS)})`;
    }
  }
}

const STEPS = 60;

async function addJobs(
  sql: Database,
  filling: ObjectFilling,
  fileIds: readonly string[],
): Promise<void> {
  const { organizationId, nowMs, mark } = filling;
  for (const [at, status] of ["succeeded", "failed", "cancelled"].entries()) {
    const id = newId("ftjob");
    const created = nowMs - (3 - at) * 5 * HOUR_MS;
    const error = {
      code: "invalid_training_file",
      message: `Line 7 has no messages.${mark}`,
      param: null,
    };
    const tuned = `ft:sandbox/chat:support${mark}:${id.slice(-12)}`;
    await sql`INSERT INTO fine_tuning_jobs ${sql({
      id,
      request_id: newId("req"),
      organization_id: organizationId,
      key_id: keyAt(filling, at),
      base_model: "sandbox/chat",
      provider_id: "sandbox",
      provider_base_model: "chat",
      training_file: fileIds[2]!,
      seed: 7,
      hyperparameters: {
        n_epochs: 3,
        batch_size: "auto",
        learning_rate_multiplier: "auto",
      } as never,
      metadata: { team: `Support${mark}` } as never,
      token_femto: 1_000_000n,
      fee_basis_points: 500,
      hold_nano: 2_000_000_000n,
      status,
      error: (status === "failed" ? error : null) as never,
      fine_tuned_model: status === "succeeded" ? tuned : null,
      trained_tokens: status === "succeeded" ? 184_200n : null,
      event_count: STEPS + 2,
      created_at: new Date(created),
      due_at: null,
      finished_at: new Date(created + HOUR_MS),
    } as never)}`;
    await sql`INSERT INTO fine_tuning_events (job_id, sequence, id, level, message, type, data, created_at)
      SELECT ${id}, i, 'ftevent_' || ${id} || '_' || i,
        CASE WHEN i = ${STEPS + 2}::int AND ${status === "failed"} THEN 'error' ELSE 'info' END,
        CASE WHEN i = 1 THEN 'Created fine-tuning job' WHEN i = ${STEPS + 2}::int THEN 'The job ended' || ${mark}::text
          ELSE 'Step ' || (i - 1) END,
        CASE WHEN i = 1 OR i = ${STEPS + 2}::int THEN 'message' ELSE 'metrics' END,
        CASE WHEN i = 1 OR i = ${STEPS + 2}::int THEN '{}'::jsonb ELSE jsonb_build_object('step', i - 1,
          'train_loss', 0.4 + 1.8 * exp(-i / 15.0) + 0.05 * sin(i), 'valid_loss',
          CASE WHEN i % 5 = 0 THEN 0.55 + 1.7 * exp(-i / 15.0) END) END,
        ${new Date(created)}::timestamptz + i * interval '30 seconds'
      FROM generate_series(1, ${STEPS + 2}::int) i`;
  }
}

const FAILED_LINES = 80;

/** It is being cancelled: each of its lines has failed, and its files are not written. */
async function addFailingBatch(sql: Database, filling: ObjectFilling): Promise<void> {
  const { organizationId, nowMs, mark } = filling;
  const keyring = await testKeyring(sql);
  const id = newId("batch");
  await sql`INSERT INTO batches (id, organization_id, key_id, endpoint, input_file, status, models, total, failed,
      costed_lines, created_at, in_progress_at, expires_at)
    VALUES (${id}, ${organizationId}, ${keyAt(filling, 0)}, '/v1/chat/completions', ${newId("file")}, 'finalizing',
      ARRAY['openai/gpt-5-mini'], ${FAILED_LINES}, ${FAILED_LINES}, ${FAILED_LINES}, ${new Date(nowMs - HOUR_MS)},
      ${new Date(nowMs - HOUR_MS)}, ${new Date(nowMs + DAY_MS)})`;
  for (let line = 1; line <= FAILED_LINES; line++) {
    const code = line % 4 === 0 ? "rate_limit_exceeded" : "model_not_allowed";
    const body = { error: { code, message: `The key may not use this model.${mark}` } };
    const response = { status_code: line % 4 === 0 ? 429 : 403, request_id: newId("req"), body };
    const text = `${JSON.stringify({ custom_id: `order-${line}${mark}`, response, error: null })}\n`;
    const sealed = keyring.sealUnder(keyring.sealingId, new TextEncoder().encode(text));
    const part = `${String(line).padStart(8, "0")}.0000`;
    await sql`INSERT INTO batch_lines (batch_id, line, is_failed) VALUES (${id}, ${line}, true)`;
    await sql`INSERT INTO batch_contents (batch_id, part, sealed) VALUES (${id}, ${part}, ${sealed as Buffer})`;
  }
}

async function addResponses(sql: Database, filling: ObjectFilling): Promise<void> {
  const { organizationId, nowMs, mark } = filling;
  const keyring = await testKeyring(sql);
  const charges = await sql<{ request_id: string; key_id: string; model: string }[]>`
    SELECT request_id, key_id, model FROM transactions
    WHERE organization_id = ${organizationId} AND type = 'usage' ORDER BY sequence DESC LIMIT 40`;
  for (const [at, { request_id: requestId, key_id: keyId, model }] of charges.entries()) {
    const id = `resp_${requestId.slice(requestId.indexOf("_") + 1)}`;
    const created = new Date(nowMs - at * HOUR_MS);
    const head = { id, object: "response", status: "completed", model, usage: null };
    const ask = {
      id: `msg_${at}a`,
      type: "message",
      role: "user",
      content: `What is the price?${mark}`,
    };
    const text = `The price is 12 USD.${mark}`;
    const answer = {
      id: `msg_${at}b`,
      type: "message",
      role: "assistant",
      content: [{ type: "output_text", text }],
    };
    await sql`INSERT INTO responses (id, organization_id, key_id, chain_id, own_bytes, chain_bytes, is_kept, created_at, remove_after)
      VALUES (${id}, ${organizationId}, ${keyId}, ${id}, 300, 300, true, ${created}, ${new Date(nowMs + 30 * DAY_MS)})`;
    for (const [part, value] of [
      ["head.00000", head],
      ["input.00000", ask],
      ["output.00000", answer],
    ] as const) {
      const sealed = keyring.sealUnder(
        keyring.sealingId,
        new TextEncoder().encode(JSON.stringify(value)),
      );
      await sql`INSERT INTO response_contents (response_id, part, sealed) VALUES (${id}, ${part}, ${sealed as Buffer})`;
    }
  }
  for (let at = 0; at < 3; at++) {
    await sql`INSERT INTO conversations (id, organization_id, key_id, metadata, created_at)
      VALUES (${newId("conv")}, ${organizationId}, ${keyAt(filling, at)},
        ${JSON.stringify({ customer: `Customer ${at + 1}${mark}` })}::text::jsonb, ${new Date(nowMs - at * DAY_MS)})`;
  }
}

/** Budgets of users and tags, the last one used up. */
async function addBudgets(sql: Database, filling: ObjectFilling): Promise<void> {
  const { organizationId, nowMs, mark } = filling;
  for (const [at, [type, value, daily, monthly, spent]] of (
    [
      ["user", "ada@example.com", 5, 100, 1.25],
      ["user", "grace@example.com", null, 40, 33.5],
      ["tag", "evaluation", 10, null, 0],
      ["tag", "batch-import", 2, 20, 2.01],
    ] as const
  ).entries()) {
    const id = newId("bud");
    const nano = (amount: number | null) =>
      amount === null ? null : String(Math.round(amount * 1e9));
    await sql`INSERT INTO subject_budgets (id, organization_id, subject_type, subject_value, daily_budget_nano,
        monthly_budget_nano, created_at)
      VALUES (${id}, ${organizationId}, ${type}, ${value + mark}, ${nano(daily)}::bigint, ${nano(monthly)}::bigint,
        ${new Date(nowMs - (9 - at) * DAY_MS)})`;
    for (const [account, kind, start] of [
      [subjectDayAccountId(id, utcDay(nowMs).start), "subject_day", utcDay(nowMs).start],
      [subjectMonthAccountId(id, utcMonth(nowMs).start), "subject_month", utcMonth(nowMs).start],
    ] as const) {
      await sql`INSERT INTO accounts (id, kind, organization_id, budget_id, period_start, posted_nano)
        VALUES (${account}, ${kind}, ${organizationId}, ${id}, ${start}, ${nano(spent)}::bigint)`;
    }
  }
}

async function addCache(
  sql: Database,
  { organizationId, nowMs, mark }: ObjectFilling,
): Promise<void> {
  const keyring = await testKeyring(sql);
  const sealed = keyring.sealUnder(keyring.sealingId, new TextEncoder().encode("{}"));
  await sql`INSERT INTO answer_caches (organization_id, entries, bytes, hits, saved_nano)
    VALUES (${organizationId}, 12, 480000, 3120, 41250000000)
    ON CONFLICT (organization_id) DO UPDATE SET entries = 12, bytes = 480000, hits = 3120, saved_nano = 41250000000`;
  for (let at = 0; at < 12; at++) {
    const model = (at % 3 === 0 ? "openai/gpt-5-mini" : "anthropic/claude-sonnet-4-5") + mark;
    await sql`INSERT INTO cached_answers (organization_id, key_hash, model, provider, cost_nano, usage, hits, bytes,
        sealed, expires_at, used_at)
      VALUES (${organizationId}, ${String(at).padStart(64, "0")}, ${model}, 'openai', 1200000, '{}', ${at * 20}, 40000,
        ${sealed as Buffer}, ${new Date(nowMs + DAY_MS)}, ${new Date(nowMs - at * HOUR_MS)})`;
  }
}
