import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runCliHere } from "../cli/cli-runs.ts";
import { firstKeys, killServer, launchGateway } from "../crash/gateway-process.ts";
import { MASTER_KEY } from "../support/master-key.ts";
import { lessonsText } from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";
import { unpackProgram } from "./earlier-program.ts";
import { type RecordedState, STATES } from "./recorded-state.ts";

/*
 * By hand: bun test/upgrade/record-state.ts <commit> <name>
 *
 * Runs an earlier program, uses what it has, kills it in the middle of a stream, and keeps a backup of its database
 * and files, for upgrades.test.ts.
 */

const [commit = "", name = ""] = process.argv.slice(2);
const IDEMPOTENCY_KEY = "sent-twice";

interface Answer {
  readonly status: number;
  readonly body: { readonly id: string };
  readonly requestId: string;
}

async function record(): Promise<void> {
  const program = await unpackProgram(commit);
  const folder = mkdtempSync(join(tmpdir(), "gateway-state-"));
  // As root the server runs as another user, who has to pass through.
  chmodSync(folder, 0o711);
  const dataDir = join(folder, "data");
  const gateway = launchGateway({
    dataDir,
    program,
    environment: { GATEWAY_MASTER_KEY: Buffer.from(MASTER_KEY).toString("base64") },
  });
  try {
    const baseUrl = await gateway.listening;
    const { secret_key: secretKey, management_key: managementKey } = firstKeys(dataDir);
    const send = async (method: string, path: string, body: unknown, key = secretKey) => {
      const isForm = body instanceof FormData;
      const response = await fetch(baseUrl + path, {
        method,
        headers: {
          authorization: `Bearer ${key}`,
          ...(!isForm && { "content-type": "application/json" }),
        },
        body: isForm ? body : JSON.stringify(body),
      });
      const text = await response.text();
      const answer: Answer = {
        status: response.status,
        body: text.startsWith("{") ? JSON.parse(text) : {},
        requestId: response.headers.get("x-gateway-request-id") ?? "",
      };
      console.log(`${answer.status} ${method} ${path}`);
      return answer;
    };
    const chat = (more: object = {}) => ({
      model: "sandbox/chat",
      messages: [{ role: "user", content: "Hello" }],
      max_tokens: 40,
      user: "ada",
      ...more,
    });
    const hook = { url: "https://receiver.example/hook", events: ["*"] };
    await send("POST", "/v1/webhooks", hook, managementKey);
    const limited = await send(
      "POST",
      "/v1/keys",
      { name: "limited", daily_budget_usd: 1, rate_limit_rpm: 60 },
      managementKey,
    );
    const { key: limitedKey = secretKey } = limited.body as { key?: string };
    // Later programs have it, and responses and vector stores.
    const subject = { type: "user", value: "ada" };
    await send("POST", "/v1/budgets", { subject, daily_budget_usd: 1 }, managementKey);
    const answers = [
      await send("POST", "/v1/chat/completions", chat()),
      await send("POST", "/v1/chat/completions", chat({ stream: true })),
      await send("POST", "/v1/chat/completions", chat(), limitedKey),
    ];
    const metadata = { idempotency_key: IDEMPOTENCY_KEY };
    const repeated = await send("POST", "/v1/chat/completions", chat({ metadata }));
    answers.push(repeated);
    const form = new FormData();
    form.append("purpose", "fine-tune");
    form.append("file", new File([lessonsText()], "lessons.jsonl"));
    const file = await send("POST", "/v1/files", form);
    const base = { model: "sandbox/chat-2026-01-01", training_file: file.body.id };
    await send("POST", "/v1/fine_tuning/jobs", base);
    const response = await send("POST", "/v1/responses", { model: "sandbox/chat", input: "Hello" });
    await send("POST", "/v1/vector_stores", { name: "Notes", file_ids: [file.body.id] });
    await cutInTheMiddle(
      baseUrl,
      secretKey,
      chat({ model: "sandbox/slow", stream: true, max_tokens: 4_000 }),
    );
    gateway.signal("SIGKILL");
    await gateway.exited;
    const path = join(folder, "state.tar");
    const made = await runCliHere({ DATA_DIR: dataDir }, "backup", path);
    if (made.exitCode !== 0) throw new Error(made.stderr);
    const state: RecordedState = {
      commit,
      secretKey,
      managementKey,
      requests: answers.filter(({ status }) => status === 200).map((one) => one.requestId),
      repeated: { body: chat({ metadata }), id: repeated.body.id },
      file: {
        id: file.body.id,
        sha256: new Bun.CryptoHasher("sha256").update(lessonsText()).digest("hex"),
      },
      response: response.status === 200 ? response.body.id : null,
    };
    const archive = Bun.zstdCompressSync(await Bun.file(path).bytes(), { level: 19 });
    await Bun.write(join(STATES, `${name}.tar.zst`), archive);
    await Bun.write(join(STATES, `${name}.json`), `${JSON.stringify(state, null, 2)}\n`);
    console.log(`${name}: ${archive.byteLength} bytes`);
  } finally {
    gateway.signal("SIGKILL");
    await gateway.exited;
    killServer(dataDir);
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Returns once some of the stream has come, which is then left as it is. */
async function cutInTheMiddle(baseUrl: string, key: string, body: object): Promise<void> {
  const stream = await fetch(`${baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const reader = stream.body!.getReader();
  await until("the stream delivers", async () => (await reader.read()).value !== undefined);
}

await record();
process.exit(0);
