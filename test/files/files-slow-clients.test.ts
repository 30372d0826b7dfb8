import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import { expectError } from "../support/error-envelope.ts";
import {
  type FilesGateway,
  fileBooks,
  startFilesGateway,
  upload,
} from "../support/files-gateway.ts";
import { sendStreamed, streamedForm } from "../support/streamed-form.ts";
import { until } from "../support/until.ts";

const NOTHING = { files: 0, uploads: 0, removals: 0, file_bytes: 0, used: 0, reserved: 0 };

const nothingIsLeft = (gateway: FilesGateway) =>
  until("neither rows nor bytes are left", async () => {
    return Bun.deepEquals(await fileBooks(gateway), NOTHING) && (await gateway.countStored()) === 0;
  });

const MEGABYTE = 1024 * 1024;

test("a client that sends, but less than the least rate, is given up, and nothing is left", async () => {
  const clock = new VirtualClock(Date.now());
  const environment = { GATEWAY_UPLOAD_MIN_BYTES_PER_SECOND: "1000000000" };
  const gateway = await startFilesGateway("disk", { clock, environment });
  const stops = [20, 21].map(() => Promise.withResolvers<void>());
  const form = streamedForm({
    purpose: "user_data",
    fileBytes: 40 * MEGABYTE,
    pattern: new Uint8Array(MEGABYTE),
    before: (sent) => stops[sent / MEGABYTE - 20]?.promise,
  });
  let given: Response | undefined;
  void sendStreamed(gateway.baseUrl, gateway.secretKey, form).then((response) => {
    given = response;
  });
  await until("room is set aside", async () => (await fileBooks(gateway)).reserved! > 0);
  const stored = () => storedBytes(gateway.dataDir);
  await until("it waits", async () => (await stored()) === 20 * MEGABYTE);
  clock.advance(55_000);
  stops[0]!.resolve();
  await until("it waits again", async () => (await stored()) === 21 * MEGABYTE);
  let silentMs = 0;
  const response = await until("it is given up", () => {
    clock.advance(500);
    silentMs += 500;
    return given;
  });
  // Sooner than for its silence.
  expect(silentMs).toBeLessThan(50_000);
  const envelope = await expectError(response, 499, "client_closed_request");
  expect(envelope.error.message).toContain("too slowly");
  await nothingIsLeft(gateway);
  await gateway.stop();
});

/** What has reached the disk, of unfinished files too. */
async function storedBytes(dataDir: string): Promise<number> {
  const paths = await Array.fromAsync(new Bun.Glob("files/**/*").scan({ cwd: dataDir }));
  return paths.reduce((sum, path) => sum + Bun.file(`${dataDir}/${path}`).size, 0);
}

describe.each(["disk", "s3"] as const)("a key that changes while its upload to %s runs", (kind) => {
  let gateway: FilesGateway;
  beforeAll(async () => {
    gateway = await startFilesGateway(kind);
  });
  afterAll(() => gateway.stop());

  const administer = async (method: string, path: string, body: unknown) => {
    const key = gateway.managementKey;
    const response = await gateway.request(method, path, body, { key });
    expect(response.status).toBeLessThan(300);
    return (await response.json()) as { id: string; key: string };
  };

  /** Changes the key when half of the file is there, and sends the rest. */
  async function answerAfter(change: Record<string, unknown>): Promise<Response> {
    const { id, key } = await administer("POST", "/v1/keys", { name: crypto.randomUUID() });
    const rest = Promise.withResolvers<void>();
    const form = streamedForm({
      purpose: "user_data",
      fileBytes: 20 * MEGABYTE,
      pattern: new Uint8Array(MEGABYTE),
      before: (sent) => (sent >= 10 * MEGABYTE ? rest.promise : undefined),
    });
    const answer = sendStreamed(gateway.baseUrl, key, form);
    await until("it runs", async () => (await fileBooks(gateway)).uploads === 1);
    await administer("PATCH", `/v1/keys/${id}`, change);
    rest.resolve();
    return answer;
  }

  test("is refused at the end where it is disabled by then, and nothing is left", async () => {
    await expectError(await answerAfter({ is_active: false }), 401, "key_inactive");
    await nothingIsLeft(gateway);
  });

  test("is refused at the end where it lost the scope, and nothing is left", async () => {
    await expectError(await answerAfter({ scopes: ["files:read"] }), 403, "missing_scope");
    await nothingIsLeft(gateway);
  });

  test("goes through where the change does not matter", async () => {
    const response = await answerAfter({ name: crypto.randomUUID() });
    expect(response.status).toBe(200);
    const { id } = (await response.json()) as { id: string };
    await gateway.request("DELETE", `/v1/files/${id}`);
    await nothingIsLeft(gateway);
  });

  if (kind === "disk") return;

  test("is refused though the last byte had come and only the store was waited for", async () => {
    const { id, key } = await administer("POST", "/v1/keys", { name: crypto.randomUUID() });
    const asked = Promise.withResolvers<void>();
    const gate = Promise.withResolvers<undefined>();
    gateway.s3!.faults.push({
      matches: (method) => method === "PUT",
      answer() {
        asked.resolve();
        return gate.promise;
      },
    });
    const answer = upload(gateway, "user_data", "abc", { key });
    await asked.promise;
    await administer("PATCH", `/v1/keys/${id}`, { is_active: false });
    gate.resolve(undefined);
    await expectError(await answer, 401, "key_inactive");
    gateway.s3!.faults.splice(0);
    await nothingIsLeft(gateway);
  });
});

describe("an upload that is refused with 503", () => {
  /** As many as one organization may have. */
  const SLOTS = 32;
  const failures = (gateway: FilesGateway) =>
    gateway.logLines.filter((line) => line.includes('"request failed"'));

  test("is no failure of the gateway where all places are taken, and one where the store fails", async () => {
    const gateway = await startFilesGateway("s3");
    const rest = Promise.withResolvers<void>();
    const running = Array.from({ length: SLOTS }, () => {
      const before = () => rest.promise;
      const form = { purpose: "user_data", fileBytes: 10, pattern: new Uint8Array(10), before };
      return sendStreamed(gateway.baseUrl, gateway.secretKey, streamedForm(form));
    });
    await until("all run", async () => (await fileBooks(gateway)).uploads === SLOTS);
    const refused = await upload(gateway, "user_data", "x");
    expect(refused.headers.get("retry-after")).toBe("5");
    await expectError(refused, 503, "overloaded");
    rest.resolve();
    for (const answer of running) expect((await answer).status).toBe(200);
    expect(failures(gateway)).toEqual([]);

    const fault = { matches: () => true, answer: () => new Response("no", { status: 403 }) };
    gateway.s3!.faults.push(fault);
    await expectError(await upload(gateway, "user_data", "x"), 503, "overloaded");
    expect(failures(gateway)).toHaveLength(1);
    gateway.s3!.faults.splice(0);
    await gateway.stop();
  });
});
