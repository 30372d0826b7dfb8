import { expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";
import type { Database } from "../../db/client.ts";
import { CHANGE_KINDS } from "../../db/queries/changes.ts";
import { ChangeFeed } from "../../src/platform/cluster/change-feed.ts";

const root = join(import.meta.dir, "../..");

/** Returns the text of the files without comments. */
async function code(folder: string, pattern: string): Promise<string> {
  const texts: string[] = [];
  for await (const file of new Glob(pattern).scan(join(root, folder))) {
    const text = await Bun.file(join(root, folder, file)).text();
    texts.push(text.replace(/\/\*[\s\S]*?\*\/|^\s*(?:\/\/|--).*$/gm, ""));
  }
  return texts.join("\n");
}

const firstGroups = (text: string, pattern: RegExp): string[] =>
  [...text.matchAll(pattern)].map((match) => match[1]!);

test("each kind of change that TypeScript or SQL sends is listed and has a subscriber", async () => {
  const functions = await code("db/functions", "*.sql");
  const rows = firstGroups(functions, /INTO changes \(kind, object_id\)\s+VALUES ([^;]+);/g);
  const sent = [
    ...firstGroups(functions, /pg_notify\('gateway_changes', '([a-z-]+) '/g),
    ...rows.flatMap((values) => firstGroups(values, /\('([a-z-]+)',/g)),
    ...firstGroups(await code("db", "**/*.ts"), /(?:record|notify)Change\(\s*\w+,\s*"([a-z-]+)"/g),
  ];
  const subscribed = firstGroups(
    await code("src/main/compose", "*.ts"),
    /changes\.(?:on|invalidate)\(\s*"([a-z-]+)"/g,
  );
  const kinds = [...CHANGE_KINDS].sort();
  expect([...new Set(sent)].sort()).toEqual(kinds);
  expect([...new Set(subscribed)].sort()).toEqual(kinds);
});

test("no statement sends a change in a form that the list of kinds does not see", async () => {
  const functions = await code("db/functions", "*.sql");
  expect(functions.match(/pg_notify\(/g)).toHaveLength(
    functions.match(/pg_notify\('gateway_changes', '[a-z-]+ '/g)!.length,
  );
  expect(functions.match(/INTO changes\b/g)).toHaveLength(
    functions.match(/INTO changes \(kind, object_id\)\s+VALUES \('/g)!.length,
  );
  // One of each, in recordChange and notifyChange.
  const queries = await code("db", "**/*.ts");
  expect(queries.match(/pg_notify\(/g)).toHaveLength(1);
  expect(queries.match(/INTO changes\b/g)).toHaveLength(1);
  expect(await code("db/migrations", "*.sql")).not.toMatch(/pg_notify\(|INTO changes\b/);
});

/** A feed whose notifications come from the test, and the kinds that it has reported as unknown. */
function openFeed() {
  const unknownKinds: string[] = [];
  let notify: (payload: string) => void = () => {};
  let reconnect: () => void = () => {};
  const sql = {
    async listen(_channel: string, onNotify: (payload: string) => void, onListen: () => void) {
      notify = onNotify;
      reconnect = onListen;
      return { async unlisten() {} };
    },
  } as unknown as Database;
  const feed = new ChangeFeed({ sql, onUnknownKind: (kind) => unknownKinds.push(kind) });
  feed.start();
  return {
    feed,
    unknownKinds,
    notify: (payload: string) => notify(payload),
    reconnect: () => reconnect(),
  };
}

test("a change reaches all subscribers of its kind, by notification and once by its row", () => {
  const { feed, notify } = openFeed();
  const changed: string[] = [];
  feed.on("api-key", (id) => changed.push(`first ${id}`));
  feed.on("api-key", (id) => changed.push(`second ${id}`));
  feed.on("organization", (id) => changed.push(`organization ${id}`));
  notify("api-key key_1");
  const row = { id: 1n, kind: "organization", objectId: "org_1" };
  feed.report([row]);
  feed.report([row]);
  expect(changed).toEqual(["first key_1", "second key_1", "organization org_1"]);
});

test("a change of an unknown kind reaches nothing, and each such kind is logged once", () => {
  const { feed, notify, unknownKinds } = openFeed();
  const changed: string[] = [];
  feed.on("fine-tuning-job", (id) => changed.push(id));
  notify("kind-of-a-later-version one");
  feed.report([{ id: 1n, kind: "kind-of-a-later-version", objectId: "two" }]);
  notify("another-kind three");
  expect(changed).toEqual([]);
  expect(unknownKinds).toEqual(["kind-of-a-later-version", "another-kind"]);
});

test("a change makes a cache forget its object, and a gap makes it forget all", () => {
  const { feed, notify, reconnect } = openFeed();
  const forgotten: string[] = [];
  let gaps = 0;
  feed.onGap(() => gaps++);
  feed.invalidate("definitions", {
    forget: (id) => forgotten.push(id),
    forgetAll: () => forgotten.push("all"),
  });
  notify("definitions org_1");
  reconnect();
  expect(forgotten).toEqual(["org_1", "all"]);
  expect(gaps).toBe(1);
});
