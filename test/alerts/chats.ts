import { insertOutboxEvents } from "../../db/queries/outbox.ts";
import type { EventType } from "../../src/lib/events/event-types.ts";
import { newId } from "../../src/lib/ids.ts";
import { manage } from "../people/people.ts";
import type { TestGateway } from "../support/gateway.ts";

/** A chat service: notes the bodies that it gets. */
export interface Chat {
  readonly url: string;
  // biome-ignore lint/suspicious/noExplicitAny: bodies that the tests compare
  readonly bodies: any[];
  /** The status that it answers, now or after a wait. */
  answer: () => number | Promise<number>;
  stop(): Promise<void>;
}

export function startChat(): Chat {
  const bodies: unknown[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      bodies.push(await request.json());
      return new Response("", { status: await chat.answer() });
    },
  });
  const chat: Chat = {
    url: `http://127.0.0.1:${server.port}/services/T0/B0/a-secret`,
    bodies,
    answer: () => 200,
    stop: () => server.stop(true),
  };
  return chat;
}

export const SAMPLE_BUDGET = {
  ...{ key_id: "key_1", key_name: "Search", threshold_percent: 80, period: "daily" },
  ...{ budget_usd: 10, spent_usd: 8, period_end: "2026-01-02T00:00:00Z" },
};

/** Writes events as their causes do, in one transaction. */
export function emitAlerts(
  { sql }: Pick<TestGateway, "sql">,
  organizationId: string,
  type: EventType,
  all: readonly Record<string, unknown>[],
): Promise<void> {
  return insertOutboxEvents(
    sql,
    all.map((data) => ({ eventId: newId("evt"), organizationId, type, data })),
  );
}

export async function addChannel(
  gateway: TestGateway,
  chat: Pick<Chat, "url">,
  more: Record<string, unknown> = {},
  key?: string,
): Promise<string> {
  const body = {
    name: "Alerts",
    type: "slack",
    url: chat.url,
    alerts: ["balance", "budgets"],
    ...more,
  };
  const created = await manage(gateway, "POST", "alert_channels", body, key);
  if (created.status !== 201) throw new Error(JSON.stringify(created.body));
  return created.body.id;
}
