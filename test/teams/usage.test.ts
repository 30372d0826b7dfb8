import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { EXACT_TOKENS, type MoneyGateway, startMoneyGateway } from "../money/money-gateway.ts";
import { addMember } from "../support/members.ts";

type Row = Record<string, string | number | null>;
type Settings = { team_id?: string; owner_id?: string };

let gateway: MoneyGateway;
let teams: string[];
let member: string;
let movedKey: { id: string; secret: string };

const createTeam = async (name: string, key = gateway.managementKey) => {
  const created = await gateway.request("POST", "/v1/teams", { name }, { key });
  expect(created.status).toBe(201);
  return ((await created.json()) as { id: string }).id;
};

/** Creates a key that has charged this number of requests. */
const addUsedKey = async (requests: number, settings: Settings = {}) => {
  const key = await gateway.addKey(settings);
  for (let request = 0; request < requests; request++) {
    const answered = await gateway.chat(key.secret, { user: `user ${request}` });
    expect(answered.status).toBe(200);
  }
  return key;
};

beforeAll(async () => {
  gateway = await startMoneyGateway({ creditUsd: 100 });
  teams = [await createTeam("research"), await createTeam("sales")].toSorted();
  member = await addMember(gateway.sql, gateway);
  const [first, second] = teams as [string, string];
  await addUsedKey(1);
  await addUsedKey(2, { team_id: first });
  movedKey = await addUsedKey(3, { team_id: first, owner_id: member });
  await addUsedKey(4, { team_id: second, owner_id: member });
});
afterAll(() => gateway.stop());

const ask = (query: string, key = gateway.managementKey) =>
  gateway.request("GET", `/v1/usage?${query}`, undefined, { key });

async function rowsOf(query: string, key?: string): Promise<Row[]> {
  const response = await ask(query, key);
  expect(response.status).toBe(200);
  return ((await response.json()) as { data: Row[] }).data;
}

/** Returns the members with these names and the number of requests of each row. */
async function requestsBy(names: readonly string[], query: string) {
  const rows = await rowsOf(query);
  return rows.map((row) => [...names.map((name) => row[name]), row.requests]);
}

describe("GET /v1/usage", () => {
  test("shows the usage of each team and member, and of keys without one as null", async () => {
    for (const interval of ["hour", "day", "month"]) {
      expect(await requestsBy(["team_id"], `group_by=team&interval=${interval}`)).toEqual([
        [null, 1],
        [teams[0], 5],
        [teams[1], 4],
      ]);
      expect(await requestsBy(["member_id"], `group_by=member&interval=${interval}`)).toEqual([
        [null, 3],
        [member, 7],
      ]);
    }
    const [row] = await rowsOf(`group_by=team&team_id=${teams[1]}`);
    expect(row).toMatchObject({ completion_tokens: 4 * EXACT_TOKENS });
  });

  test("combines team and member with each other and with model, key and provider", async () => {
    const rows = await rowsOf("group_by=team,member,model,key,provider");
    expect(rows.map(({ requests }) => requests).toSorted()).toEqual([1, 2, 3, 4]);
    expect(rows.find(({ key_id }) => key_id === movedKey.id)).toMatchObject({
      ...{ team_id: teams[0], member_id: member, model: "test/exact", requests: 3 },
    });
    expect(await requestsBy(["member_id", "team_id"], "group_by=member,team")).toEqual([
      [null, null, 1],
      [null, teams[0], 2],
      [member, teams[0], 3],
      [member, teams[1], 4],
    ]);
  });

  test("filters by team and member, also users and models", async () => {
    expect(await requestsBy([], `team_id=${teams[0]}`)).toEqual([[5]]);
    expect(await requestsBy([], `team_id=${teams[0]}&interval=hour`)).toEqual([[5]]);
    expect(await requestsBy([], `member_id=${member}&model=test/exact`)).toEqual([[7]]);
    expect(await requestsBy([], `team_id=${teams[0]}&member_id=${member}`)).toEqual([[3]]);
    expect(await requestsBy(["user"], `team_id=${teams[0]}&group_by=user`)).toEqual([
      ["user 0", 2],
      ["user 1", 2],
      ["user 2", 1],
    ]);
    expect(await rowsOf("team_id=team_none")).toEqual([]);
    expect(await rowsOf(`member_id=${member}&key_id=key_none`)).toEqual([]);
  });

  test("pages through teams", async () => {
    const page = await ask("group_by=team&limit=1&offset=1");
    expect(await page.json()).toMatchObject({
      data: [{ team_id: teams[0], requests: 5 }],
      has_more: true,
    });
  });

  test("has the teams and members in CSV", async () => {
    const lines = (await (await ask("group_by=team,member&format=csv")).text()).split("\r\n");
    expect(lines[0]).toStartWith("date,team_id,team_name,member_id,member_name,requests,");
    expect(lines[1]).toContain(",,,,,1,");
    expect(lines[4]).toMatch(new RegExp(`,${teams[1]},[^,]+,${member},[^,]*,4,`));
  });

  test.each(["group_by=team,user", "group_by=tag,member", "group_by=team,team"])(
    "rejects %s with 400",
    async (query) => {
      const response = await ask(query);
      expect(response.status).toBe(400);
      expect(await response.json()).toMatchObject({
        error: { code: "invalid_query", param: "group_by" },
      });
    },
  );

  test("never shows another organization's usage, whatever ids it is asked for", async () => {
    const other = await gateway.addOrganization();
    const foreign = await createTeam("theirs", other.managementKey);
    const settings = { name: "Theirs", team_id: foreign };
    const { secret } = await gateway.addKey(settings, other.managementKey);
    expect((await gateway.chat(secret)).status).toBe(200);
    for (const query of [`team_id=${foreign}`, `team_id=${foreign}&group_by=team`]) {
      expect(await rowsOf(query)).toEqual([]);
      expect(await rowsOf(query, other.managementKey)).toMatchObject([{ requests: 1 }]);
    }
    for (const query of [`team_id=${teams[0]}`, `member_id=${member}&group_by=user`]) {
      expect(await rowsOf(query, other.managementKey)).toEqual([]);
    }
  });

  test("shows a key of a team only its own usage", async () => {
    const own = { team_id: teams[0], requests: 3 };
    expect(await rowsOf("group_by=team", movedKey.secret)).toMatchObject([own]);
    expect(await rowsOf(`team_id=${teams[1]}`, movedKey.secret)).toEqual([]);
  });

  test("moves the usage of a key with it to another team", async () => {
    const changed = await gateway.request(
      "PATCH",
      `/v1/keys/${movedKey.id}`,
      { team_id: teams[1] },
      { key: gateway.managementKey },
    );
    expect(changed.status).toBe(200);
    expect(await requestsBy(["team_id"], "group_by=team")).toEqual([
      [null, 1],
      [teams[0], 2],
      [teams[1], 7],
    ]);
  });
});
