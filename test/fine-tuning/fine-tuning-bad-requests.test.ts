import { afterAll, beforeAll, expect, test } from "bun:test";
import { uploaded } from "../support/files-gateway.ts";
import {
  lessonsText,
  SANDBOX_BASE,
  startTuningGateway,
  type TuningGateway,
  UPSTREAM_BASE,
} from "../support/tuning-gateway.ts";

let gateway: TuningGateway;
let trainingFile: string;
beforeAll(async () => {
  gateway = await startTuningGateway();
  trainingFile = (await uploaded(gateway, "fine-tune", lessonsText())).id;
}, 60_000);
afterAll(() => gateway.stop());

interface Refusal {
  readonly error: {
    readonly code: string;
    readonly param: string | null;
    readonly message: string;
  };
}

async function create(body: unknown, key?: string): Promise<{ status: number } & Refusal["error"]> {
  const response = await gateway.request("POST", "/v1/fine_tuning/jobs", body, { key });
  const { error } = (await response.json()) as Refusal;
  return { status: response.status, ...error };
}

const request = (rest: object = {}) => ({
  model: SANDBOX_BASE,
  training_file: trainingFile,
  ...rest,
});

async function keyWith(settings: object): Promise<string> {
  const response = await gateway.request(
    "POST",
    "/v1/keys",
    { name: crypto.randomUUID(), ...settings },
    { key: gateway.managementKey },
  );
  return ((await response.json()) as { key: string }).key;
}

test("a body that is no order is refused with 400 and the field at fault", async () => {
  const cases: [unknown, string | null][] = [
    [{}, "model"],
    [{ model: SANDBOX_BASE }, "training_file"],
    [request({ model: 5 }), "model"],
    [request({ model: "" }), "model"],
    [request({ training_file: "" }), "training_file"],
    [request({ hyperparameters: { n_epochs: 0 } }), "hyperparameters.n_epochs"],
    [request({ hyperparameters: { n_epochs: 51 } }), "hyperparameters.n_epochs"],
    [request({ hyperparameters: { n_epochs: 1.5 } }), "hyperparameters.n_epochs"],
    [request({ hyperparameters: { n_epochs: "3" } }), "hyperparameters.n_epochs"],
    [request({ hyperparameters: { batch_size: 0 } }), "hyperparameters.batch_size"],
    [
      request({ hyperparameters: { learning_rate_multiplier: 0 } }),
      "hyperparameters.learning_rate_multiplier",
    ],
    [request({ suffix: "" }), "suffix"],
    [request({ suffix: "a/b" }), "suffix"],
    [request({ suffix: "a:b" }), "suffix"],
    [request({ suffix: "x".repeat(65) }), "suffix"],
    [request({ seed: -1 }), "seed"],
    [request({ seed: 2 ** 31 }), "seed"],
    [request({ metadata: { a: 1 } }), "metadata.a"],
    [request({ metadata: { "": "x" } }), "metadata"],
    [request({ metadata: { ["x".repeat(65)]: "x" } }), "metadata"],
    [request({ training_file: "file_absent" }), "training_file"],
    [request({ validation_file: "file_absent" }), "validation_file"],
  ];
  for (const [body, param] of cases) {
    const refused = await create(body);
    expect({ body, status: refused.status, code: refused.code }).toMatchObject({
      status: 400,
      code: "invalid_body",
    });
    if (param !== null) expect(refused.param ?? "").toBe(param);
  }
  expect(await create(request({ integrations: [] }))).toMatchObject({
    status: 400,
    code: "invalid_body",
  });
  expect(await create("[")).toMatchObject({ status: 400, code: "invalid_json" });
});

test("a file of another purpose is refused with 400", async () => {
  const other = await uploaded(gateway, "user_data", lessonsText());
  expect(await create(request({ training_file: other.id }))).toMatchObject({
    status: 400,
    param: "training_file",
  });
});

test("an unknown model is 404, one that nobody trains 400", async () => {
  expect(await create(request({ model: "sandbox/none" }))).toMatchObject({
    status: 404,
    code: "model_not_found",
    param: "model",
  });
  for (const model of ["sandbox/chat", "sandbox/embed"]) {
    expect(await create(request({ model }))).toMatchObject({
      status: 400,
      code: "unsupported_model",
      param: "model",
    });
  }
});

test("the key decides: 401, 403 for its scope, its kind and its models, 429 for its rate", async () => {
  expect((await create(request(), "gateway_sk_x")).status).toBe(401);
  const chatOnly = await keyWith({ scopes: ["chat:completions"] });
  expect(await create(request(), chatOnly)).toMatchObject({ status: 403, code: "missing_scope" });
  expect(await create(request(), gateway.managementKey)).toMatchObject({
    status: 403,
    code: "wrong_key_kind",
  });
  const otherModel = await keyWith({ allowed_models: ["sandbox/chat"] });
  expect(await create(request(), otherModel)).toMatchObject({
    status: 403,
    code: "model_not_allowed",
  });
  const slow = await keyWith({ rate_limit_rpm: 1 });
  const first = await gateway.request("POST", "/v1/fine_tuning/jobs", request(), { key: slow });
  expect(first.status).toBe(200);
  expect(first.headers.get("x-ratelimit-limit")).toBe("1");
  expect((await create(request(), slow)).status).toBe(429);
});

test("what cannot be afforded is refused with 402, and leaves neither a job nor a kept file", async () => {
  const poor = await gateway.addOrganization({ creditUsd: 0.000_000_1 });
  const file = await uploaded(gateway, "fine-tune", lessonsText(), { key: poor.secretKey });
  expect(await create(request({ training_file: file.id }), poor.secretKey)).toMatchObject({
    status: 402,
    code: "insufficient_credits",
  });
  const listed = await gateway.request("GET", "/v1/fine_tuning/jobs", undefined, {
    key: poor.secretKey,
  });
  expect(await listed.json()).toEqual({ object: "list", data: [], has_more: false });
  const kept =
    await gateway.sql`SELECT 1 FROM file_uses WHERE organization_id = ${poor.organization.id}`;
  expect(kept).toHaveLength(0);
});

test("an organization that brings its own keys is refused with 402 where it has none for the trainer", async () => {
  const { secretKey } = await gateway.addOrganization({ plan: "byok" });
  const file = await uploaded(gateway, "fine-tune", lessonsText(), { key: secretKey });
  const order = (model: string) => create(request({ model, training_file: file.id }), secretKey);
  expect(await order(UPSTREAM_BASE)).toMatchObject({ status: 402 });
  expect((await order(SANDBOX_BASE)).status).toBe(200);
});

test("an organization has a bounded number of jobs that run at a time", async () => {
  const { organization, secretKey } = await gateway.addOrganization({ creditUsd: 10 });
  const file = await uploaded(gateway, "fine-tune", lessonsText(), { key: secretKey });
  // Hours from now, so that they stay as they are.
  await gateway.sql`INSERT INTO fine_tuning_jobs (id, request_id, organization_id, key_id, base_model,
      provider_id, provider_base_model, training_file, seed, hyperparameters, token_femto,
      fee_basis_points, hold_nano, due_at)
    SELECT 'ftjob_full' || n, 'req_full' || n, ${organization.id}, 'key', 'm', 'p', 'm', 'f', 1,
      '{}', 1, 0, 0, now() + interval '5 hours' FROM generate_series(1, 25) n`;
  expect(await create(request({ training_file: file.id }), secretKey)).toMatchObject({
    status: 403,
    code: "quota_exceeded",
  });
});

test("queries of the lists are read strictly", async () => {
  for (const query of [
    "limit=0",
    "limit=101",
    "limit=1e1",
    "after=",
    "after=ftjob_x",
    "before=x",
  ]) {
    const response = await gateway.request("GET", `/v1/fine_tuning/jobs?${query}`);
    expect([query, response.status]).toEqual([query, 400]);
  }
  const { id } = await gateway.tune();
  const events = `/v1/fine_tuning/jobs/${id}/events`;
  expect((await gateway.request("GET", `${events}?after=ftevent_x`)).status).toBe(400);
  expect((await gateway.request("GET", `${events}?limit=-1`)).status).toBe(400);
});

test("unknown jobs and verbs are 404 and 405, whatever their names hold", async () => {
  for (const id of ["ftjob_none", "%00", "%2e%2e", "a%20b", "x".repeat(2_000)]) {
    for (const path of ["", "/events"]) {
      const response = await gateway.request("GET", `/v1/fine_tuning/jobs/${id}${path}`);
      expect([id, path, response.status]).toEqual([id, path, 404]);
    }
    const cancel = await gateway.request("POST", `/v1/fine_tuning/jobs/${id}/cancel`);
    expect([id, cancel.status]).toEqual([id, 404]);
  }
  expect((await gateway.request("DELETE", "/v1/fine_tuning/jobs/x")).status).toBe(405);
});
