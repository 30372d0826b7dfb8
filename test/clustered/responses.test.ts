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

  const ask = async ({ baseUrl }: Instance, method: string, path: string, body?: object) => {
    const response = await fetch(`${baseUrl}/v1/responses${path}`, {
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
