import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { findTestRedis } from "../support/redis.ts";
import { type Cluster, type Instance, openCluster } from "./cluster.ts";

const TIMEOUT_MS = 90_000;
const TURNS = 20;
const redis = await findTestRedis();

describe.skipIf(redis === undefined)("responses of two instances", () => {
  let cluster: Cluster;
  let instances: Instance[];
  beforeAll(async () => {
    cluster = await openCluster(redis!.url);
    instances = [await cluster.start(), await cluster.start()];
  }, TIMEOUT_MS);
  afterAll(() => cluster?.stop());

  const ask = (instance: Instance, method: string, path: string, body?: object) =>
    askFor(instance, method, `responses${path}`, body);

  const askFor = async ({ baseUrl }: Instance, method: string, path: string, body?: object) => {
    const response = await fetch(`${baseUrl}/v1/${path}`, {
      method,
      headers: {
        authorization: `Bearer ${cluster.secretKey}`,
        "content-type": "application/json",
      },
      ...(body && { body: JSON.stringify(body) }),
    });
    return { status: response.status, text: await response.text() };
  };

  /** The id of a response, as soon as its answer's end has come. */
  function idIn(text: string): string {
    const [, id] = /"id":"(resp_[0-9a-f]+)"/.exec(text) ?? [];
    return id!;
  }

  test(
    "turns of a conversation on both follow one another, and those that run at once all stand in it",
    async () => {
      const { text } = await askFor(instances[0]!, "POST", "conversations", {});
      const { id: conversation } = JSON.parse(text) as { id: string };
      const turn = async (at: number, input: string) => {
        const body = { model: "sandbox/chat", input, max_output_tokens: 5, conversation };
        expect((await ask(instances[at % 2]!, "POST", "", body)).status).toBe(200);
      };
      const inputs = Array.from({ length: TURNS }, (_, at) => `turn ${at}`);
      for (const [at, input] of inputs.entries()) {
        await turn(at, input);
        const items = await askFor(
          instances[(at + 1) % 2]!,
          "GET",
          `conversations/${conversation}/items?limit=2`,
        );
        expect(items.text).toContain(`"${input}"`);
      }
      const together = inputs.map((input) => `${input} at once`);
      await Promise.all(together.map((input, at) => turn(at, input)));
      const path = `conversations/${conversation}/items?limit=100&order=asc`;
      const [here, there] = await Promise.all(
        instances.map(async (instance) => (await askFor(instance, "GET", path)).text),
      );
      expect(there).toBe(here!);
      const { data } = JSON.parse(here!) as {
        data: { role: string; content: { text: string }[] }[];
      };
      const asked = data
        .filter(({ role }) => role === "user")
        .map(({ content }) => content[0]!.text);
      expect(asked.slice(0, TURNS)).toEqual(inputs);
      expect(asked.slice(TURNS).sort()).toEqual(together.sort());
      expect(data).toHaveLength(TURNS * 4);
    },
    TIMEOUT_MS,
  );

  test(
    "each turn is there for the next one on the other instance as soon as its answer ends, whole or streamed",
    async () => {
      let previous: string | undefined;
      for (let turn = 0; turn < TURNS; turn++) {
        const { status, text } = await ask(instances[turn % 2]!, "POST", "", {
          model: "sandbox/chat",
          input: `turn ${turn}`,
          max_output_tokens: 5,
          stream: turn % 3 === 0,
          previous_response_id: previous ?? null,
        });
        expect([turn, status, status === 200 ? "" : text]).toEqual([turn, 200, ""]);
        previous = idIn(text);
      }
      const path = `/${previous}/input_items?limit=100&order=asc`;
      for (const instance of instances) {
        const { data } = JSON.parse((await ask(instance, "GET", path)).text) as {
          data: { role: string; content: { text: string }[] }[];
        };
        const asked = data.filter(({ role }) => role === "user");
        expect(asked.map(({ content }) => content[0]!.text)).toEqual(
          Array.from({ length: TURNS }, (_, turn) => `turn ${turn}`),
        );
      }
      expect((await ask(instances[0]!, "DELETE", `/${previous}`)).status).toBe(200);
      expect((await ask(instances[1]!, "GET", `/${previous}`)).status).toBe(404);
    },
    TIMEOUT_MS,
  );
});
