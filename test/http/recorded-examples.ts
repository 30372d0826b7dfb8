import { followPasswordLink, joined } from "../people/people.ts";
import { type FilesGateway, startFilesGateway } from "../support/files-gateway.ts";
import type { TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";
import { lessonsText, SANDBOX_BASE } from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";
import { startReceiver } from "../webhooks/receiver.ts";

// biome-ignore lint/suspicious/noExplicitAny: answers of many endpoints
type Json = Record<string, any>;

export interface OperationExamples {
  request?: unknown;
  form?: unknown;
  response?: unknown;
  event?: unknown;
}

/** Examples by operation id. */
export type Examples = Record<string, OperationExamples>;

interface Operation {
  readonly method: string;
  /** With its parameters in braces. */
  readonly path: string;
  readonly key: "secret" | "management" | "operator";
}

interface Call {
  readonly body?: object;
  readonly form?: Readonly<Record<string, string | File | readonly File[]>>;
  /** Values of the path's parameters, in their order. */
  readonly ids?: readonly string[];
  readonly query?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

const PUBLIC_RECEIVER = "https://example.com/gateway";
const MAX_TEXT = 120;
const MAX_ITEMS = 2;

/** Calls every operation of a gateway, and returns the requests and the answers as examples. */
export async function recordExamples(): Promise<Examples> {
  const receiver = startReceiver();
  const provider = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: () => Response.json({ object: "list", data: [] }),
  });
  const gateway = await startFilesGateway("disk", {
    environment: {
      GATEWAY_TEST_PAYMENTS: "true",
      GATEWAY_EGRESS_ALLOW: "127.0.0.0/8",
      GATEWAY_WEBHOOK_ALLOW_HTTP: "true",
    },
    configuration: {
      providers: [
        {
          id: "example",
          type: "openai-compatible",
          base_url: `http://127.0.0.1:${provider.port}`,
          api_key: "sk-operator",
        },
      ],
    },
  });
  try {
    const recorder = await Recorder.start(gateway, receiver.url);
    await recordModelCalls(recorder);
    await recordResponses(recorder);
    await recordMedia(recorder);
    await recordFiles(recorder);
    await recordKeysAndBudgets(recorder, gateway);
    await recordMoney(recorder);
    await recordWebhooks(recorder, receiver.url);
    await recordAlertChannels(recorder, receiver.url);
    await recordDefinitions(recorder);
    await recordTuning(recorder);
    await recordOperators(recorder);
    await recordReports(recorder);
    return recorder.examples;
  } finally {
    await gateway.stop();
    await provider.stop(true);
    await receiver.stop();
  }
}

class Recorder {
  readonly examples: Examples = {};
  readonly #gateway: FilesGateway;
  readonly #operations: ReadonlyMap<string, Operation>;
  readonly #operatorKey: string;
  readonly #receiverUrl: string;

  private constructor(
    gateway: FilesGateway,
    operations: ReadonlyMap<string, Operation>,
    operatorKey: string,
    receiverUrl: string,
  ) {
    this.#gateway = gateway;
    this.#operations = operations;
    this.#operatorKey = operatorKey;
    this.#receiverUrl = receiverUrl;
  }

  static async start(gateway: FilesGateway, receiverUrl: string): Promise<Recorder> {
    const { paths } = await (await gateway.request("GET", "/openapi.json")).json();
    const operations = new Map<string, Operation>();
    for (const [path, methods] of Object.entries<Json>(paths)) {
      for (const [method, { operationId, description }] of Object.entries<Json>(methods)) {
        operations.set(operationId, {
          method: method.toUpperCase(),
          path,
          key: keyIn(description),
        });
      }
    }
    return new Recorder(gateway, operations, await addOperator(gateway), receiverUrl);
  }

  /** Calls an operation and records it. Returns the answer. Throws if it is an error. */
  async record(operationId: string, call: Call = {}): Promise<Json> {
    const answer = await this.call(operationId, call);
    const form = call.form && Object.entries(call.form);
    this.examples[operationId] = {
      ...this.examples[operationId],
      ...(call.body && { request: this.#shorten(call.body) }),
      ...(form && {
        form: Object.fromEntries(form.map(([name, value]) => [name, exampleOf(value)])),
      }),
      ...(answer !== undefined && { response: this.#shorten(answer) }),
    };
    return answer as Json;
  }

  /** Records the first event of a stream that `isExample` accepts. */
  async recordEvent(
    operationId: string,
    call: Call,
    isExample: (event: Json) => boolean,
  ): Promise<void> {
    const response = await this.#send(operationId, call);
    const event = (await response.text())
      .split("\n")
      .filter((line) => line.startsWith("data: {"))
      .map((line) => JSON.parse(line.slice("data: ".length)) as Json)
      .find(isExample);
    if (event === undefined) throw new Error(`${operationId}: the stream has no such event`);
    this.examples[operationId] = {
      ...this.examples[operationId],
      event: this.#shorten(event),
    };
  }

  /** Calls an operation. Returns its answer, or undefined if that is no JSON. */
  async call(operationId: string, call: Call = {}): Promise<Json | undefined> {
    const response = await this.#send(operationId, call);
    const isJson = response.headers.get("content-type")?.startsWith("application/json");
    return isJson ? ((await response.json()) as Json) : void (await response.bytes());
  }

  async bytes(operationId: string, call: Call): Promise<Uint8Array<ArrayBuffer>> {
    return (await (await this.#send(operationId, call)).bytes()) as Uint8Array<ArrayBuffer>;
  }

  async #send(
    operationId: string,
    { body, form, headers, ids = [], query = "" }: Call,
  ): Promise<Response> {
    const operation = this.#operations.get(operationId);
    if (operation === undefined) throw new Error(`${operationId} is no operation`);
    const values = [...ids];
    const path = operation.path.replace(/\{\w+\}/g, () => values.shift()!);
    const { secretKey, managementKey } = this.#gateway;
    const keys = { secret: secretKey, management: managementKey, operator: this.#operatorKey };
    const parts = new FormData();
    for (const [name, value] of Object.entries(form ?? {})) {
      for (const part of [value].flat()) parts.append(name, part as string);
    }
    const response = await fetch(`${this.#gateway.baseUrl}${path}${query}`, {
      method: operation.method,
      headers: {
        ...headers,
        authorization: `Bearer ${keys[operation.key]}`,
        ...(body && { "content-type": "application/json" }),
      },
      body: form === undefined ? body && JSON.stringify(body) : parts,
    });
    if (!response.ok) throw new Error(`${operationId}: ${await response.text()}`);
    return response;
  }

  /** Returns a value without secrets, with short texts and lists, and with addresses of examples. */
  #shorten(value: unknown): unknown {
    if (typeof value === "string") {
      const text = value
        .replaceAll(this.#gateway.baseUrl, "http://127.0.0.1:3000")
        .replaceAll(this.#receiverUrl, PUBLIC_RECEIVER)
        .replace(/#[\w-]{43}$/, "#…")
        .replace(/\b((?:gateway_\w+?|whsec)_\w{4})\w{12,}/g, "$1…");
      return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
    }
    if (Array.isArray(value)) return value.slice(0, MAX_ITEMS).map((item) => this.#shorten(item));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([name, member]) => [name, this.#shorten(member)]),
    );
  }
}

/** Returns the value of a form's field as an example: a file by its name. */
function exampleOf(value: string | File | readonly File[]): unknown {
  if (value instanceof File) return value.name;
  return typeof value === "string" ? value : value.map(({ name }) => name);
}

function keyIn(description: string): Operation["key"] {
  if (description.includes("operator key")) return "operator";
  return /Needs a management key(?:, or| with)/.test(description) ? "management" : "secret";
}

const hello = [{ role: "user", content: "Hello" }];

async function recordModelCalls(recorder: Recorder): Promise<void> {
  const chat = { model: "sandbox/chat", messages: hello };
  await recorder.record("chat.completions.create", { body: chat });
  await recorder.recordEvent(
    "chat.completions.create",
    { body: { ...chat, stream: true } },
    (event) => event.choices[0]?.delta.content,
  );
  const message = { ...chat, max_tokens: 100 };
  await recorder.record("messages.create", { body: message });
  await recorder.recordEvent(
    "messages.create",
    { body: { ...message, stream: true } },
    (event) => event.type === "content_block_delta",
  );
  await recorder.record("messages.count_tokens", { body: chat });
  const input = ["A first text", "A second text"];
  await recorder.record("embeddings.create", {
    body: { model: "sandbox/embed", input, dimensions: 8 },
  });
  const documents = ["Paris is the capital of France.", "Bread is made of flour."];
  await recorder.record("rerank.create", {
    body: { model: "sandbox/rerank", query: "What is the capital of France?", documents },
  });
  await recorder.record("moderations.create", {
    body: { model: "sandbox/moderation", input: "A text about violence" },
  });
}

async function recordResponses(recorder: Recorder): Promise<void> {
  const body = { model: "sandbox/chat", input: "Hello" };
  const { id } = await recorder.record("responses.create", { body });
  await recorder.recordEvent(
    "responses.create",
    { body: { ...body, stream: true } },
    (event) => event.type === "response.output_text.delta",
  );
  await recorder.record("responses.input_tokens.count", { body });
  await recorder.record("responses.compact", {
    body: { model: "sandbox/chat", input: hello },
  });
  const ids = [id as string];
  await recorder.record("responses.retrieve", { ids });
  await recorder.record("responses.input_items.list", { ids });
  const background = { ...body, background: true, stream: true };
  let backgroundId = "";
  await recorder.recordEvent("responses.create", { body: background }, (event) => {
    backgroundId = event.response?.id ?? backgroundId;
    return event.type === "response.output_text.delta";
  });
  await recorder.recordEvent(
    "responses.retrieve",
    { ids: [backgroundId], query: "?stream=true" },
    (event) => event.type === "response.output_text.delta",
  );
  const slow = { ...body, model: "sandbox/slow-first-token", background: true };
  const running = (await recorder.call("responses.create", { body: slow }))!;
  await recorder.record("responses.cancel", { ids: [running.id] });
  await recorder.record("responses.delete", { ids });
  await recordConversations(recorder);
}

async function recordConversations(recorder: Recorder): Promise<void> {
  const items = [{ type: "message", role: "user", content: "Hello" }];
  const { id } = await recorder.record("conversations.create", {
    body: { metadata: { topic: "greeting" }, items },
  });
  const ids = [id as string];
  await recorder.record("conversations.retrieve", { ids });
  await recorder.record("conversations.update", { ids, body: { metadata: { topic: "travel" } } });
  const { data } = await recorder.record("conversations.items.create", { ids, body: { items } });
  await recorder.record("conversations.items.list", { ids });
  const item = [id as string, data[0].id as string];
  await recorder.record("conversations.items.retrieve", { ids: item });
  await recorder.record("conversations.items.delete", { ids: item });
  await recorder.record("conversations.delete", { ids });
}

async function recordMedia(recorder: Recorder): Promise<void> {
  const picture = { model: "sandbox/image", prompt: "A red bicycle", size: "64x64" };
  await recorder.record("images.generations.create", { body: picture });
  const asBytes = { ...picture, response_format: "b64_json" };
  const made = await recorder.call("images.generations.create", { body: asBytes });
  await recorder.recordEvent(
    "images.generations.create",
    { body: { ...asBytes, stream: true, partial_images: 1 } },
    (event) => event.type.endsWith("completed"),
  );
  const image = new File([Buffer.from(made!.data[0].b64_json, "base64")], "bicycle.png");
  const edit = { model: "sandbox/image", prompt: "A blue bicycle", size: "64x64", image: [image] };
  await recorder.record("images.edits.create", { form: edit });
  await recorder.recordEvent(
    "images.edits.create",
    { form: { ...edit, stream: "true", response_format: "b64_json" } },
    (event) => event.type.endsWith("completed"),
  );
  await recorder.record("images.variations.create", {
    form: { model: "sandbox/image", size: "64x64", image },
  });
  const speech = { model: "sandbox/tts", voice: "alloy", input: "Hello there" };
  await recorder.record("audio.speech.create", { body: speech });
  await recorder.recordEvent(
    "audio.speech.create",
    { body: { ...speech, stream_format: "sse" } },
    (event) => event.type === "speech.audio.delta",
  );
  const bytes = await recorder.bytes("audio.speech.create", { body: speech });
  const form = { model: "sandbox/stt", file: new File([bytes], "speech.mp3") };
  await recorder.record("audio.transcriptions.create", { form });
  await recorder.record("audio.translations.create", { form });
  for (const operationId of ["audio.transcriptions.create", "audio.translations.create"]) {
    await recorder.recordEvent(
      operationId,
      { form: { ...form, stream: "true" } },
      (event) => event.type === "transcript.text.done",
    );
  }
}

async function recordFiles(recorder: Recorder): Promise<void> {
  const text = new File(["The museum opens at ten.\n"], "museum.txt");
  const { id: file } = await recorder.record("files.create", {
    form: { purpose: "assistants", file: text },
  });
  await recorder.record("files.list");
  await recorder.record("files.retrieve", { ids: [file] });
  await recorder.record("files.download_url.create", { ids: [file] });
  const { id: store } = await recorder.record("vector_stores.create", {
    body: { name: "Museum", metadata: { team: "visits" } },
  });
  const ids = [store as string];
  await recorder.record("vector_stores.files.create", {
    ids,
    body: { file_id: file, attributes: { year: 2026 } },
  });
  await until("the file is indexed", async () => {
    const { file_counts: counts } = (await recorder.call("vector_stores.retrieve", { ids }))!;
    return counts.completed === 1;
  });
  await recorder.record("vector_stores.list");
  await recorder.record("vector_stores.retrieve", { ids });
  await recorder.record("vector_stores.update", { ids, body: { name: "Museum hours" } });
  await recorder.record("vector_stores.search", {
    ids,
    body: { query: "When does the museum open?", max_num_results: 5 },
  });
  await recorder.record("vector_stores.files.list", { ids });
  const stored = [store as string, file as string];
  await recorder.record("vector_stores.files.retrieve", { ids: stored });
  await recorder.record("vector_stores.files.update", {
    ids: stored,
    body: { attributes: { year: 2027 } },
  });
  await recorder.record("vector_stores.files.content.list", { ids: stored });
  await recorder.record("vector_stores.files.delete", { ids: stored });
  const { id: batch } = await recorder.record("vector_stores.file_batches.create", {
    ids,
    body: { file_ids: [file] },
  });
  const batchIds = [store as string, batch as string];
  await recorder.record("vector_stores.file_batches.retrieve", { ids: batchIds });
  await recorder.record("vector_stores.file_batches.files.list", { ids: batchIds });
  await recorder.record("vector_stores.file_batches.cancel", { ids: batchIds });
  await recorder.record("vector_stores.delete", { ids });
  await recorder.record("files.delete", { ids: [file] });
  await recordBatches(recorder);
}

async function recordBatches(recorder: Recorder): Promise<void> {
  const request = { method: "POST", url: "/v1/chat/completions" };
  const line = { custom_id: "1", ...request, body: { model: "sandbox/chat", messages: hello } };
  const input = await recorder.call("files.create", {
    form: { purpose: "batch", file: new File([`${JSON.stringify(line)}\n`], "requests.jsonl") },
  });
  const { id } = await recorder.record("batches.create", {
    body: {
      input_file_id: input!.id,
      endpoint: "/v1/chat/completions",
      completion_window: "24h",
    },
  });
  const ids = [id as string];
  await until("the batch is completed", async () => {
    return (await recorder.call("batches.retrieve", { ids }))!.status === "completed";
  });
  await recorder.record("batches.retrieve", { ids });
  await recorder.record("batches.list");
  const slow = { ...line, body: { ...line.body, model: "sandbox/slow-first-token" } };
  const slowInput = await recorder.call("files.create", {
    form: { purpose: "batch", file: new File([`${JSON.stringify(slow)}\n`], "slow.jsonl") },
  });
  const body = { ...(recorder.examples["batches.create"]!.request as object) };
  const running = await recorder.call("batches.create", {
    body: { ...body, input_file_id: slowInput!.id },
  });
  await recorder.record("batches.cancel", { ids: [running!.id] });
}

async function recordKeysAndBudgets(recorder: Recorder, gateway: TestGateway): Promise<void> {
  const { id } = await recorder.record("keys.create", {
    body: {
      name: "ada",
      scopes: ["chat:completions", "models:read"],
      rate_limit_rpm: 60,
      daily_budget_usd: 2.5,
      allowed_models: ["sandbox/chat"],
    },
  });
  const ids = [id as string];
  await recorder.record("keys.list", { query: "?search=ada" });
  await recorder.record("keys.retrieve", { ids });
  await recorder.record("keys.update", {
    ids,
    body: { monthly_budget_usd: 50, rate_limit_rpm: null },
  });
  await recorder.record("keys.delete", { ids });
  await recorder.record("key.retrieve");
  const { id: budget } = await recorder.record("budgets.create", {
    body: { subject: { type: "user", value: "customer-17" }, monthly_budget_usd: 20 },
  });
  await recorder.record("budgets.list");
  await recorder.record("budgets.retrieve", { ids: [budget] });
  await recorder.record("budgets.update", { ids: [budget], body: { daily_budget_usd: 2 } });
  await recorder.record("budgets.delete", { ids: [budget] });
  const { id: team } = await recorder.record("teams.create", {
    body: {
      name: "Research",
      monthly_budget_usd: 500,
      rate_limit_rpm: 600,
      allowed_models: ["sandbox/chat"],
      key_policy: { max_keys_per_member: 3, max_daily_budget_usd: 5 },
    },
  });
  await recorder.record("teams.list");
  await recorder.record("teams.retrieve", { ids: [team] });
  await recorder.record("teams.update", { ids: [team], body: { daily_budget_usd: 25 } });
  await recorder.record("teams.delete", { ids: [team] });
  await recordPeople(recorder, gateway);
  const { id: providerKey } = await recorder.record("provider_keys.create", {
    body: { provider: "example", key: "sk-0123456789abcdef", name: "Team account" },
  });
  await recorder.record("provider_keys.list");
  await recorder.record("provider_keys.delete", { ids: [providerKey] });
}

async function recordPeople(recorder: Recorder, gateway: TestGateway): Promise<void> {
  const { id } = await recorder.record("invitations.create", {
    body: { email: "grace@example.com", role: "developer" },
  });
  await recorder.record("invitations.list");
  await recorder.record("invitations.delete", { ids: [id] });
  await recorder.record("scim_tokens.create", { body: { name: "Directory" } });
  await recorder.record("scim_tokens.list");
  const { state } = await joined(gateway, "developer", { email: "ada@example.com" });
  const ids = [state.person.member_id];
  await recorder.record("members.list");
  await recorder.record("members.retrieve", { ids });
  await recorder.record("members.update", { ids, body: { role: "viewer", daily_budget_usd: 5 } });
  await joined(gateway, "viewer", { email: "operator@example.com" });
  for (const [email, role] of [
    ["operator@example.com", "operator"],
    ["ada@example.com", "operator_viewer"],
  ] as const) {
    const link = await recorder.record("admin.password_links.create", { body: { email } });
    await followPasswordLink(gateway, link as { url: string });
    await recorder.record("admin.operators.create", { body: { email, role } });
  }
  const { data: operators } = await recorder.record("admin.operators.list");
  const viewer = operators.find((one: Json) => one.email === "ada@example.com");
  await recorder.record("admin.operators.delete", { ids: [viewer.id] });
  await recorder.record("admin.organizations.invitations.create", {
    ids: [gateway.organizationId],
    body: { email: "alan@example.com", role: "owner" },
  });
  await recorder.record("members.delete", { ids });
  await recordIdentityProviders(recorder, gateway.organizationId);
}

async function recordIdentityProviders(recorder: Recorder, organizationId: string): Promise<void> {
  const { id } = await recorder.record("admin.identity_providers.create", {
    body: {
      ...{ name: "Example", issuer: "https://login.example.com" },
      ...{ client_id: "gateway", client_secret: "secret-of-the-client" },
      rules: [
        { claim: "groups", value: "gateway-admins", operator_role: "operator" },
        { claim: "groups", value: "research", organization_id: organizationId, role: "developer" },
      ],
    },
  });
  await recorder.record("admin.identity_providers.list");
  await recorder.record("admin.identity_providers.retrieve", { ids: [id] });
  await recorder.record("admin.identity_providers.update", {
    ids: [id],
    body: { scopes: "openid email profile groups" },
  });
  await recorder.record("admin.identity_providers.delete", { ids: [id] });
}

async function recordMoney(recorder: Recorder): Promise<void> {
  await recorder.record("billing.payment_methods.create", {
    body: { payment_method: "pm_card_visa" },
  });
  const listed = await recorder.record("billing.payment_methods.list");
  const ids = [listed.data[0].id as string];
  await recorder.record("billing.payment_methods.update", { ids, body: { is_default: true } });
  await recorder.record("credits.topup", { body: { amount_usd: 25 } });
  await recorder.record("credits.update", {
    body: { auto_replenish: true, replenish_threshold_usd: 10, replenish_amount_usd: 50 },
  });
  await recorder.record("credits.retrieve");
  await recorder.record("credits.transactions.list");
  await recorder.record("billing.payments.list");
  const statements = await recorder.record("billing.statements.list");
  const months = [statements.data[0].month as string];
  await recorder.record("billing.statements.retrieve", { ids: months });
  await recorder.call("credits.update", { body: { auto_replenish: false } });
  await recorder.record("billing.subscription.update", { body: { plan: "byok" } });
  await recorder.record("billing.subscription.retrieve");
  const second = await recorder.call("billing.payment_methods.create", {
    body: { payment_method: "pm_card_mastercard" },
  });
  const added = (await recorder.call("billing.payment_methods.list"))!.data as Json[];
  const removable = added.find(({ is_default: isDefault }) => !isDefault) ?? second!;
  await recorder.record("billing.payment_methods.delete", { ids: [removable.id] });
}

async function recordWebhooks(recorder: Recorder, receiverUrl: string): Promise<void> {
  const { id } = await recorder.record("webhooks.create", {
    body: { url: receiverUrl, events: ["key.created", "budget.exhausted"] },
  });
  const ids = [id as string];
  await recorder.record("webhooks.list");
  await recorder.record("webhooks.retrieve", { ids });
  await recorder.record("webhooks.update", { ids, body: { description: "Budgets and keys" } });
  await recorder.record("webhooks.test", { ids, body: { type: "budget.exhausted" } });
  await recorder.call("keys.create", { body: { name: "grace" } });
  const delivery = await until("the event is delivered", async () => {
    const { data } = (await recorder.call("webhooks.deliveries.list", { ids }))!;
    return (data as Json[]).find(({ status }) => status === "delivered");
  });
  await recorder.record("webhooks.deliveries.list", { ids });
  await recorder.record("webhooks.redeliver", { ids: [id, delivery.id] });
  await recorder.record("webhooks.rotate_secret", { ids });
  await recorder.record("webhooks.delete", { ids });
}

async function recordAlertChannels(recorder: Recorder, receiverUrl: string): Promise<void> {
  const { id } = await recorder.record("alert_channels.create", {
    body: { name: "On call", type: "slack", url: receiverUrl, alerts: ["balance", "jobs"] },
  });
  const ids = [id as string];
  await recorder.record("alert_channels.list");
  await recorder.record("alert_channels.retrieve", { ids });
  await recorder.record("alert_channels.update", { ids, body: { alerts: ["balance", "budgets"] } });
  await recorder.record("alert_channels.test", { ids });
  await recorder.record("alert_channels.delete", { ids });
}

async function recordDefinitions(recorder: Recorder): Promise<void> {
  const preset = await recorder.record("presets.create", {
    body: {
      name: "support",
      model: "sandbox/chat",
      system: "You answer for the support team.",
      parameters: { temperature: 0.2, max_tokens: 500 },
    },
  });
  await recorder.record("presets.list");
  await recorder.record("presets.retrieve", { ids: [preset.id] });
  await recorder.record("presets.update", { ids: [preset.id], body: { name: "support 2" } });
  await recorder.record("presets.delete", { ids: [preset.id] });
  const guardrail = await recorder.record("guardrails.create", {
    body: {
      name: "no-personal-data",
      rules: [{ type: "pii", on: ["input", "output"], action: "redact" }],
    },
  });
  await recorder.record("guardrails.list");
  await recorder.record("guardrails.retrieve", { ids: [guardrail.id] });
  await recorder.record("guardrails.update", { ids: [guardrail.id], body: { name: "cards" } });
  await recorder.record("guardrails.delete", { ids: [guardrail.id] });
  await recorder.record("cache.clear");
}

async function recordTuning(recorder: Recorder): Promise<void> {
  const lessons = new File([lessonsText().repeat(4)], "lessons.jsonl");
  const file = await recorder.call("files.create", {
    form: { purpose: "fine-tune", file: lessons },
  });
  const body = { model: SANDBOX_BASE, training_file: file!.id, suffix: "museum" };
  const { id } = await recorder.record("fine_tuning.jobs.create", { body });
  const ids = [id as string];
  await until("the job has succeeded", async () => {
    return (await recorder.call("fine_tuning.jobs.retrieve", { ids }))!.status === "succeeded";
  });
  const job = await recorder.record("fine_tuning.jobs.retrieve", { ids });
  await recorder.record("fine_tuning.jobs.list");
  await recorder.record("fine_tuning.jobs.events.list", { ids });
  const second = await recorder.call("fine_tuning.jobs.create", { body });
  await recorder.record("fine_tuning.jobs.cancel", { ids: [second!.id] });
  await recorder.record("models.delete", { ids: [job.fine_tuned_model] });
}

async function recordOperators(recorder: Recorder): Promise<void> {
  const created = await recorder.record("admin.organizations.create", {
    body: { name: "Museum", plan: "pro", max_keys: 500 },
  });
  const ids = [created.organization.id as string];
  await recorder.record("admin.organizations.list");
  await recorder.record("admin.organizations.retrieve", { ids });
  await recorder.record("admin.organizations.update", {
    ids,
    body: { plan: "enterprise", credit_limit_usd: 500 },
  });
  await recorder.record("admin.organizations.adjustments.create", {
    ids,
    body: { amount_usd: 100, description: "Invoice 17" },
  });
  const organization = await recorder.record("organization.retrieve");
  const { data } = (await recorder.call("credits.transactions.list", { query: "?type=usage" }))!;
  await recorder.record("admin.organizations.refunds.create", {
    ids: [organization.id],
    body: { transaction_id: data[0].id },
  });
  await recordConfiguration(recorder);
  await recorder.record("admin.audit_log.list");
  await recorder.record("admin.usage.retrieve", { query: "?group_by=organization" });
  await recorder.record("audit_log.list");
}

async function recordConfiguration(recorder: Recorder): Promise<void> {
  const chat = { id: "sandbox/chat" };
  await recorder.record("admin.providers.create", {
    body: { id: "lab", type: "sandbox", max_parallel_requests: 8 },
  });
  await recorder.record("admin.models.create", {
    body: {
      ...{ id: "acme/assistant", context_length: 8192 },
      ...{ input_cost_per_token: 1e-6, output_cost_per_token: 2e-6 },
      endpoints: [{ provider: "lab", model: "chat" }],
    },
  });
  const weighted = [
    { ...chat, weight: 95 },
    { id: "acme/assistant", weight: 5 },
  ];
  await recorder.record("admin.aliases.create", { body: { id: "fast", models: weighted } });
  await recorder.record("admin.prices.create", {
    body: {
      ...{ id: "from-2027", model: "acme/assistant", valid_from: "2027-01-01T00:00:00Z" },
      pricing: { input_cost_per_token: 2e-6 },
    },
  });
  const changes = { providers: "lab", models: "acme/assistant", aliases: "fast" };
  const bodies = {
    providers: { max_parallel_requests: 16 },
    models: { output_cost_per_token: 3e-6 },
    aliases: { models: [chat, { id: "acme/assistant" }] },
  };
  for (const [plural, id] of Object.entries(changes)) {
    const version = { "if-match": '"1"' };
    const body = bodies[plural as keyof typeof bodies];
    await recorder.record(`admin.${plural}.list`);
    await recorder.record(`admin.${plural}.retrieve`, { ids: [id] });
    await recorder.record(`admin.${plural}.update`, { ids: [id], body, headers: version });
    await recorder.record(`admin.${plural}.test`, { ids: [id], body: {} });
  }
  await recorder.record("admin.prices.list");
  const deletions = [
    ["prices", "from-2027", 1],
    ["aliases", "fast", 2],
    ["models", "acme/assistant", 2],
    ["providers", "lab", 2],
  ] as const;
  for (const [plural, id, version] of deletions) {
    const headers = { "if-match": `"${version}"` };
    await recorder.record(`admin.${plural}.delete`, { ids: [id], headers });
  }
}

async function recordReports(recorder: Recorder): Promise<void> {
  const requests = await recorder.record("requests.list");
  await recorder.record("requests.retrieve", { ids: [requests.data[0].id] });
  await recorder.record("usage.retrieve", { query: "?group_by=model" });
  await recorder.record("usage.latency.retrieve");
  await recorder.record("models.list", { query: "?provider=Sandbox" });
  await recorder.record("models.count");
  await recorder.record("models.search", { query: "?q=sandbox" });
  await recorder.record("models.compare", { query: "?models=sandbox/chat,sandbox/embed" });
  await recorder.record("models.retrieve", { ids: ["sandbox/chat"] });
  await recorder.record("healthz.retrieve");
  await recorder.record("readyz.retrieve");
}
