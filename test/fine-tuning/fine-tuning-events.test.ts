import { afterAll, beforeAll, expect, test } from "bun:test";
import { startTuningGateway, type TuningGateway } from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";

let gateway: TuningGateway;
beforeAll(async () => {
  gateway = await startTuningGateway({ environment: { GATEWAY_KEEPALIVE_MS: "200" } });
}, 60_000);
afterAll(() => gateway.stop());

interface Frame {
  readonly id: string | undefined;
  readonly data: string;
}

function follow(id: string, headers: Record<string, string> = {}, signal?: AbortSignal) {
  return gateway.request("GET", `/v1/fine_tuning/jobs/${id}/events`, undefined, {
    headers: { accept: "text/event-stream", ...headers },
    signal,
  });
}

function framesOf(text: string): Frame[] {
  return text
    .split("\n\n")
    .filter((frame) => frame.includes("data: "))
    .map((frame) => ({
      id: /^id: (.*)$/m.exec(frame)?.[1],
      data: /^data: (.*)$/m.exec(frame)![1]!,
    }));
}

test("events are streamed from the first on as they come, each with its id, until [DONE]", async () => {
  const { id } = await gateway.tune();
  const response = await follow(id);
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
  expect(response.headers.get("cache-control")).toBe("no-cache");
  const reading = response.text();
  await gateway.ended(id);
  const frames = framesOf(await reading);
  expect(frames.at(-1)).toEqual({ id: undefined, data: "[DONE]" });
  const events = frames.slice(0, -1).map((frame) => ({ frame, event: JSON.parse(frame.data) }));
  for (const { frame, event } of events) {
    expect(event).toMatchObject({
      object: "fine_tuning.job.event",
      id: frame.id,
      level: "info",
    });
    expect([typeof event.created_at, typeof event.message, typeof event.data]).toEqual([
      "number",
      "string",
      "object",
    ]);
  }
  expect(events[0]!.event.message).toBe(`Created fine-tuning job: ${id}`);
  expect(events.at(-1)!.event.message).toBe("The job has successfully completed");
  expect(new Set(events.map(({ frame }) => frame.id)).size).toBe(events.length);

  // The list has the same ones, newest first.
  const list = await gateway.request("GET", `/v1/fine_tuning/jobs/${id}/events?limit=100`);
  const { data } = (await list.json()) as { data: unknown[] };
  expect(data).toEqual(events.map(({ event }) => event).reverse());
}, 60_000);

test("a stream goes on behind Last-Event-ID, and from the first where the job has no such event", async () => {
  const { id } = await gateway.tune();
  await gateway.ended(id);
  const all = framesOf(await (await follow(id)).text());
  for (const position of [0, 2, all.length - 2]) {
    const lastEventId = all[position]!.id!;
    const rest = framesOf(await (await follow(id, { "last-event-id": lastEventId })).text());
    expect(rest).toEqual(all.slice(position + 1));
  }
  const foreign = await gateway.tune();
  await gateway.ended(foreign.id);
  const [other] = framesOf(await (await follow(foreign.id)).text());
  for (const lastEventId of [other!.id!, "nonsense", "é"]) {
    const text = await (await follow(id, { "last-event-id": encodeURI(lastEventId) })).text();
    expect(framesOf(text)).toEqual(all);
  }
}, 60_000);

test("a quiet stream says that it is alive, and a client that leaves ends it and harms nothing", async () => {
  const { id } = await gateway.tune({ outcome: "never" });
  await until("it runs", async () => (await gateway.job(id)).status === "running", 20_000);
  for (let client = 0; client < 20; client++) {
    const controller = new AbortController();
    const response = await follow(id, {}, controller.signal);
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    while (!text.includes(client % 5 === 0 ? ": keepalive\n\n" : "Created")) {
      const { value, done } = await reader.read();
      if (done) break;
      text += value;
    }
    expect(text).toContain(`Created fine-tuning job: ${id}`);
    controller.abort();
    await reader.cancel().catch(() => {});
  }
  const cancelled = await gateway.request("POST", `/v1/fine_tuning/jobs/${id}/cancel`);
  expect(cancelled.status).toBe(200);
  expect(framesOf(await (await follow(id)).text()).at(-1)!.data).toBe("[DONE]");
  expect(gateway.logLines.filter((line) => line.includes("background failure"))).toEqual([]);
}, 60_000);

test("a stream ends for a key that is switched off in the middle of it, and tells it nothing more", async () => {
  const { id } = await gateway.tune({ outcome: "never" });
  await until("it runs", async () => (await gateway.job(id)).status === "running", 20_000);
  const made = await gateway.request(
    "POST",
    "/v1/keys",
    { name: `follower of ${id}` },
    { key: gateway.managementKey },
  );
  const follower = (await made.json()) as { id: string; key: string };
  const asFollower = { headers: { accept: "text/event-stream" }, key: follower.key };
  const path = `/v1/fine_tuning/jobs/${id}/events`;
  const response = await gateway.request("GET", path, undefined, asFollower);
  const reading = response.text();
  const change = { is_active: false };
  await gateway.request("PATCH", `/v1/keys/${follower.id}`, change, { key: gateway.managementKey });
  const text = await reading;
  expect(text).toContain(`Created fine-tuning job: ${id}`);
  expect(text).not.toContain("[DONE]");
  expect((await gateway.request("GET", path, undefined, asFollower)).status).toBe(401);
  await gateway.request("POST", `/v1/fine_tuning/jobs/${id}/cancel`);
  expect(gateway.logLines.filter((line) => line.includes("background failure"))).toEqual([]);
}, 60_000);

test("Accept decides between a stream and a list", async () => {
  const { id } = await gateway.tune();
  await gateway.ended(id);
  const typeOf = async (accept: string) =>
    (await follow(id, { accept })).headers.get("content-type")!.split(";")[0];
  expect(await typeOf("application/json")).toBe("application/json");
  expect(await typeOf("*/*")).toBe("application/json");
  expect(await typeOf("text/event-stream-not")).toBe("application/json");
  expect(await typeOf("text/event-stream;q=0, application/json")).toBe("application/json");
  expect(await typeOf("text/event-stream; q=0.0")).toBe("application/json");
  expect(await typeOf("Text/Event-Stream;q=0.9, */*")).toBe("text/event-stream");
}, 60_000);

test("pages of events and jobs follow one another without a gap", async () => {
  const jobs = [await gateway.tune(), await gateway.tune(), await gateway.tune()];
  const { id } = jobs[2]!;
  await gateway.ended(id);
  const pages = async (path: string) => {
    const ids: string[] = [];
    let after = "";
    for (;;) {
      const response = await gateway.request("GET", `${path}?limit=2${after}`);
      const page = (await response.json()) as { data: { id: string }[]; has_more: boolean };
      expect(page.data.length).toBeLessThanOrEqual(2);
      ids.push(...page.data.map((one) => one.id));
      if (!page.has_more) return ids;
      after = `&after=${ids.at(-1)}`;
    }
  };
  const events = await pages(`/v1/fine_tuning/jobs/${id}/events`);
  const streamed = framesOf(await (await follow(id)).text()).slice(0, -1);
  expect(events).toEqual(streamed.map((frame) => frame.id!).reverse());
  const listed = await pages("/v1/fine_tuning/jobs");
  expect(listed.slice(0, 3)).toEqual(jobs.map((job) => job.id).reverse());
  expect(new Set(listed).size).toBe(listed.length);
}, 60_000);
