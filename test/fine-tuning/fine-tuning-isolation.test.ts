import { afterAll, beforeAll, expect, test } from "bun:test";
import type { PreparedOrganization } from "../../src/accounts/organizations/organizations.ts";
import { expectError } from "../support/error-envelope.ts";
import { uploaded } from "../support/files-gateway.ts";
import {
  lessonsText,
  startTuningGateway,
  type TuningGateway,
  UPSTREAM_BASE,
} from "../support/tuning-gateway.ts";

let gateway: TuningGateway;
let stranger: PreparedOrganization;
beforeAll(async () => {
  gateway = await startTuningGateway();
  stranger = await gateway.addOrganization();
}, 60_000);
afterAll(() => gateway.stop());

const asStranger = (method: string, path: string, body?: unknown) =>
  gateway.request(method, path, body, { key: stranger.secretKey });

test("another organization's job, its events and its model are not there, and its file cannot be trained on", async () => {
  const { id } = await gateway.tune();
  const model = (await gateway.ended(id)).fine_tuned_model!;
  const path = `/v1/fine_tuning/jobs/${id}`;
  expect((await asStranger("GET", path)).status).toBe(404);
  expect((await asStranger("GET", `${path}/events`)).status).toBe(404);
  const stream = await gateway.request("GET", `${path}/events`, undefined, {
    key: stranger.secretKey,
    headers: { accept: "text/event-stream" },
  });
  expect(stream.status).toBe(404);
  expect((await asStranger("POST", `${path}/cancel`)).status).toBe(404);
  expect((await asStranger("GET", `/v1/fine_tuning/jobs?after=${id}`)).status).toBe(400);
  const jobs = await asStranger("GET", "/v1/fine_tuning/jobs");
  expect(await jobs.json()).toEqual({ object: "list", data: [], has_more: false });

  const name = encodeURIComponent(model);
  expect((await asStranger("GET", `/v1/models/${name}`)).status).toBe(404);
  expect((await asStranger("GET", `/v1/models/compare?models=${name}`)).status).toBe(404);
  expect((await asStranger("DELETE", `/v1/models/${name}`)).status).toBe(404);
  const chat = { model, messages: [{ role: "user", content: "x" }] };
  expect((await asStranger("POST", "/v1/chat/completions", chat)).status).toBe(404);
  for (const list of ["/v1/models", `/v1/models/search?q=${id.slice(-12)}`, "/v1/models/search"]) {
    expect(await (await asStranger("GET", list)).text()).not.toContain(model);
    if (list.includes("q=") || list === "/v1/models") {
      expect(await (await gateway.request("GET", list)).text()).toContain(model);
    }
  }

  const own = await uploaded(gateway, "fine-tune", lessonsText());
  const stolen = await asStranger("POST", "/v1/fine_tuning/jobs", {
    model: UPSTREAM_BASE,
    training_file: own.id,
  });
  expect(stolen.status).toBe(400);

  // Its own organization still has it.
  expect((await gateway.request("GET", `/v1/models/${name}`)).status).toBe(200);
  const answered = await gateway.request("POST", "/v1/chat/completions", chat);
  expect(answered.status).toBe(200);
}, 60_000);

test("a key that is restricted to other models does not reach a tuned one; one that names it does", async () => {
  const { id } = await gateway.tune();
  const model = (await gateway.ended(id)).fine_tuned_model!;
  const chat = { model, messages: [{ role: "user", content: "x" }] };
  const statusFor = async (allowed: string) => {
    const created = await gateway.request(
      "POST",
      "/v1/keys",
      { name: crypto.randomUUID(), allowed_models: [allowed] },
      { key: gateway.managementKey },
    );
    const { key } = (await created.json()) as { key: string };
    return (await gateway.request("POST", "/v1/chat/completions", chat, { key })).status;
  };
  expect(await statusFor(UPSTREAM_BASE)).toBe(403);
  expect(await statusFor(model)).toBe(200);
}, 60_000);

test("deleting takes a management key or the scope models:write", async () => {
  const { id } = await gateway.tune();
  const model = (await gateway.ended(id)).fine_tuned_model!;
  const path = `/v1/models/${model}`;
  const created = await gateway.request(
    "POST",
    "/v1/keys",
    { name: crypto.randomUUID(), scopes: ["models:read", "fine_tuning"] },
    { key: gateway.managementKey },
  );
  const { key } = (await created.json()) as { key: string };
  expect((await gateway.request("DELETE", path, undefined, { key })).status).toBe(403);
  const options = { key: gateway.managementKey };
  expect((await gateway.request("DELETE", path, undefined, options)).status).toBe(200);
  expect((await gateway.request("DELETE", path, undefined, options)).status).toBe(404);
}, 60_000);

test("a limited key deletes no tuned model, not even one of its model list", async () => {
  const { id } = await gateway.tune();
  const model = (await gateway.ended(id)).fine_tuned_model!;
  for (const allowed of [UPSTREAM_BASE, model]) {
    const created = await gateway.request(
      "POST",
      "/v1/keys",
      { name: crypto.randomUUID(), scopes: ["models:write"], allowed_models: [allowed] },
      { key: gateway.managementKey },
    );
    const { key } = (await created.json()) as { key: string };
    const refused = await gateway.request("DELETE", `/v1/models/${model}`, undefined, { key });
    await expectError(refused, 403, "key_not_permitted");
  }
}, 60_000);

test("a model that was made a moment ago is known before the news of it comes", async () => {
  const { id } = await gateway.tune();
  const model = (await gateway.ended(id)).fine_tuned_model!;
  const ask = (name: string) =>
    gateway.request("POST", "/v1/chat/completions", {
      model: name,
      messages: [{ role: "user", content: "x" }],
    });
  expect((await ask(model)).status).toBe(200);
  // As on an instance that has not been told.
  await gateway.sql`INSERT INTO tuned_models (id, organization_id, job_id, base_model, provider_id,
      provider_model)
    SELECT id || '-unheard', organization_id, job_id || '-unheard', base_model, provider_id,
      provider_model FROM tuned_models WHERE id = ${model}`;
  expect((await ask(`${model}-unheard`)).status).toBe(200);
  expect((await ask(`${model}-never`)).status).toBe(404);
}, 60_000);
