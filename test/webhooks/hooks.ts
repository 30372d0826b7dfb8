import type { TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";
import type { Receiver } from "./receiver.ts";

export interface Hook {
  readonly id: string;
  readonly secret: string;
  readonly url: string;
  readonly enabled: boolean;
}

export interface ListedDelivery {
  readonly id: string;
  readonly event_id: string;
  readonly event_type: string;
  readonly status: string;
  readonly attempts: readonly {
    readonly at: string;
    readonly status_code: number | null;
    readonly error: string | null;
    readonly latency_ms: number;
  }[];
  readonly next_attempt_at: string | null;
  readonly created_at: string;
  readonly waits_behind: { readonly id: string; readonly next_attempt_at: string | null } | null;
}

/** An organization of its own, and what its tests do with it. */
export interface HookOwner {
  readonly organizationId: string;
  readonly key: string;
  call(method: string, path: string, body?: unknown): Promise<Response>;
  addHook(receiver: { readonly url: string }, settings?: Record<string, unknown>): Promise<Hook>;
  /** Creates an API key, and with it the event key.created. */
  emit(name: string): Promise<void>;
  deliveries(hook: Hook): Promise<ListedDelivery[]>;
  hook(hook: Hook): Promise<Hook & { disabled_by: string | null }>;
}

export async function addHookOwner(gateway: TestGateway): Promise<HookOwner> {
  const { organization, managementKey: key } = await gateway.addOrganization();
  const call: HookOwner["call"] = (method, path, body) =>
    gateway.request(method, path, body, { key });
  const read = async <Body>(method: string, path: string, body?: unknown): Promise<Body> => {
    const response = await call(method, path, body);
    if (!response.ok)
      throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as Body;
  };
  return {
    organizationId: organization.id,
    key,
    call,
    addHook: ({ url }, settings = {}) =>
      read<Hook>("POST", "/v1/webhooks", { url, events: ["*"], ...settings }),
    async emit(name) {
      await read("POST", "/v1/keys", { name });
    },
    async deliveries({ id }) {
      const page = await read<{ data: ListedDelivery[] }>(
        "GET",
        `/v1/webhooks/${id}/deliveries?limit=1000`,
      );
      return page.data.reverse();
    },
    hook: ({ id }) => read("GET", `/v1/webhooks/${id}`),
  };
}

/** Names of the keys that a receiver was told of, in the order of their first receipt. */
export function namesOf(receiver: Receiver): string[] {
  return [...new Set(receiver.received.map(({ event }) => String(event.data.key_name)))];
}

export function untilReceived(receiver: Receiver, count: number): Promise<boolean> {
  return until(
    `${count} requests, not ${receiver.received.length}`,
    () => receiver.received.length >= count,
  );
}
