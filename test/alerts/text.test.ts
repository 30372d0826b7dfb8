import { describe, expect, test } from "bun:test";
import { alertLine, alertMessage, MAX_LISTED_ALERTS, plain } from "../../src/alerts/alert-text.ts";
import { chatBody } from "../../src/alerts/chat-message.ts";
import {
  ALERT_KIND_NAMES,
  type AlertKind,
  alertKindsOf,
  CHAT_TYPES,
} from "../../src/lib/alerts.ts";
import { isErrorRateHigh } from "../../src/lib/error-rate.ts";
import { EVENT_TYPES, sampleData } from "../../src/lib/events/event-types.ts";
import { openTestDatabase } from "../support/database.ts";
import { SAMPLE_BUDGET } from "./chats.ts";

const HOSTILE = [
  "<!channel> <!here> <@U123> <https://evil.example|click>",
  "@everyone @here <@&1> <@1>",
  "**bold** _it_ ~s~ `code` ||spoiler|| [a](https://evil.example) # head > quote",
  "<at>Ada</at> <script>alert(1)</script>",
  "a\r\nb\u0000c\u202Edcba\u2066",
];

const messageFor = (name: string) =>
  alertMessage({
    id: "alc_1.0",
    organizationName: name,
    shown: [
      { kind: "budgets", type: "budget.threshold", data: { ...SAMPLE_BUDGET, key_name: name } },
    ],
    counts: new Map([["budgets", 1]]),
    names: new Map(),
    publicUrl: "https://gateway.example.com",
  });

describe.each(HOSTILE)("a name such as %p", (name) => {
  test("pings and links nothing in Slack", () => {
    const body = JSON.parse(chatBody("slack", messageFor(name)));
    expect(body.text).not.toMatch(/<|@(everyone|here|channel)|:\/\//);
    for (const block of body.blocks.slice(0, 2)) expect(block.text.type).toBe("plain_text");
    expect(body.blocks[2].elements).toEqual([
      { type: "mrkdwn", text: "<https://gateway.example.com/dashboard/keys|Open the dashboard>" },
    ]);
  });

  test("pings and links nothing in Discord", () => {
    const body = JSON.parse(chatBody("discord", messageFor(name)));
    expect(body.allowed_mentions).toEqual({ parse: [] });
    const [title, line, link] = body.content.split("\n");
    expect(body.content.split("\n").length).toBe(3);
    expect(link).toBe("<https://gateway.example.com/dashboard/keys>");
    for (const text of [title.slice(2, -2), line]) {
      expect(text.replaceAll(/\\./g, "")).not.toMatch(/[*_~`|>#<[\]()\\]|@(everyone|here)|:\/\//);
    }
  });

  test("is no markup in Teams", () => {
    const body = JSON.parse(chatBody("teams", messageFor(name)));
    const { content } = body.attachments[0];
    expect(content.body.map(({ type }: { type: string }) => type)).toEqual([
      "RichTextBlock",
      "RichTextBlock",
    ]);
    expect(content.msteams).toBeUndefined();
    expect(JSON.stringify(content.body)).not.toMatch(/@(everyone|here)|:\/\//);
  });

  test("is one line without controls", () => {
    expect(plain(name)).not.toMatch(/[\p{Cc}\p{Cf}]/u);
  });
});

test("a message of a storm lists some alerts, counts the rest, and fits every service", () => {
  const name = "<".repeat(5_000);
  const alert = {
    kind: "budgets",
    type: "budget.exhausted",
    data: { ...SAMPLE_BUDGET, key_name: name },
  } as const;
  const message = alertMessage({
    id: "alc_1.0",
    organizationName: name,
    shown: Array.from({ length: MAX_LISTED_ALERTS }, () => alert),
    counts: new Map<AlertKind, number>([
      ["budgets", 9_000],
      ["jobs", 1_000],
    ]),
    names: new Map(),
    publicUrl: undefined,
  });
  expect(message.title).toEndWith(": 10000 alerts");
  expect(message.lines.at(-1)).toBe("9990 earlier: 9000 × Budgets, 1000 × Failed jobs in total.");
  const slack = JSON.parse(chatBody("slack", message));
  expect(slack.blocks[0].text.text.length).toBeLessThanOrEqual(150);
  expect(slack.blocks[1].text.text.length).toBeLessThanOrEqual(3_000);
  expect(JSON.parse(chatBody("discord", message)).content.length).toBeLessThanOrEqual(2_000);
  expect(chatBody("teams", message).length).toBeLessThanOrEqual(28_000);
});

test("a title of mentions fits a header of Slack", () => {
  const message = { title: `${"@".repeat(100)}: Budgets`, lines: [], url: undefined, id: "a" };
  const { text } = JSON.parse(chatBody("slack", message)).blocks[0].text;
  expect(text.length).toBeLessThanOrEqual(150);
  expect(text).not.toContain("@@");
});

test("each event that is an alert has a sentence, and each kind has an event", async () => {
  const database = await openTestDatabase(1);
  const kinds = new Set<string>();
  for (const type of EVENT_TYPES) {
    const data = {
      ...sampleData(type),
      ...(type === "batch.completed" && { request_counts: { total: 2, completed: 1, failed: 1 } }),
    };
    const [row] = await database.sql<{ kind: string | null }[]>`
      SELECT alert_kind(${type}, ${JSON.stringify(data)}::text::jsonb) AS kind`;
    if (row!.kind === null) continue;
    kinds.add(row!.kind);
    const line = alertLine(type, data, new Map());
    expect(line).not.toMatch(/undefined|NaN|null|^Event/);
    for (const chat of CHAT_TYPES) {
      expect(chatBody(chat, { title: "A", lines: [line], url: undefined, id: "a" })).not.toBe("");
    }
  }
  await database.drop();
  expect([...kinds].sort()).toEqual([...ALERT_KIND_NAMES].sort());
});

test("a batch with few failed requests is no alert", async () => {
  const database = await openTestDatabase(1);
  const kindOf = async (failed: number, total: number) => {
    const data = { request_counts: { total, completed: total - failed, failed } };
    const [row] = await database.sql<{ kind: string | null }[]>`
      SELECT alert_kind('batch.completed', ${JSON.stringify(data)}::text::jsonb) AS kind`;
    return row!.kind;
  };
  expect([await kindOf(0, 0), await kindOf(0, 80), await kindOf(39, 80)]).toEqual([
    null,
    null,
    null,
  ]);
  expect([await kindOf(40, 80), await kindOf(80, 80)]).toEqual(["jobs", "jobs"]);
  await database.drop();
});

test("the kinds of a role are those that it may read", () => {
  expect(alertKindsOf("viewer")).toEqual([...ALERT_KIND_NAMES]);
  expect(alertKindsOf("billing")).toEqual(["balance", "payments", "requests"]);
  expect(alertKindsOf("developer")).toEqual(["budgets", "jobs"]);
});

test("an error rate is high from a fifth on, until it is below a tenth, with enough requests", () => {
  expect(isErrorRateHigh({ requests: 100, errors: 19 }, false)).toBe(false);
  expect(isErrorRateHigh({ requests: 100, errors: 20 }, false)).toBe(true);
  expect(isErrorRateHigh({ requests: 100, errors: 10 }, true)).toBe(true);
  expect(isErrorRateHigh({ requests: 100, errors: 9 }, true)).toBe(false);
  expect(isErrorRateHigh({ requests: 19, errors: 19 }, false)).toBe(false);
  expect(isErrorRateHigh({ requests: 19, errors: 0 }, true)).toBe(true);
});
