import { useState } from "preact/hooks";
import { call } from "../api.ts";
import { Button, Choice, Link } from "../components/controls.tsx";
import { Confirm, perform } from "../components/dialog.tsx";
import { Badge, Empty, PageHead, Panel, Time } from "../components/display.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { duration } from "../format.ts";
import { useResource } from "../resource.ts";
import { SecretDialog, type Webhook, WebhookState } from "./webhooks.tsx";

interface Attempt {
  readonly at: string;
  readonly status_code: number | null;
  readonly error: string | null;
  readonly latency_ms: number;
}

interface Delivery {
  readonly id: string;
  readonly event_id: string;
  readonly event_type: string;
  readonly status: "pending" | "delivered" | "failed" | "dropped";
  readonly attempts: readonly Attempt[];
  readonly next_attempt_at: string | null;
}

const PAGE = 50;
const TESTED = "completion.success";
const TONES = { pending: "warn", delivered: "good", failed: "bad", dropped: "bad" } as const;

/** One webhook, and what became of the events that were sent to it. */
export function DeliveriesPage({ id }: { readonly id: string }) {
  const [status, setStatus] = useState("");
  /** The last delivery of each page before. */
  const [before, setBefore] = useState<readonly string[]>([]);
  const [secret, setSecret] = useState<string>();
  const [isRotating, setRotating] = useState(false);
  const webhook = useResource<Webhook>(`v1/webhooks/${encodeURIComponent(id)}`);
  const base = `v1/webhooks/${encodeURIComponent(id)}`;
  const parameters = new URLSearchParams({ limit: String(PAGE) });
  if (status !== "") parameters.set("status", status);
  if (before.length > 0) parameters.set("after", before.at(-1)!);
  const path = `${base}/deliveries?${parameters}`;
  const { data, error, reload } = useResource<{ data: Delivery[]; has_more: boolean }>(path, true);
  const redeliver = (delivery: Delivery) =>
    perform("Sent the event again.", async () => {
      const sent = await call<Sent>("POST", `${base}/deliveries/${delivery.id}/redeliver`);
      reload();
      assertDelivered(sent);
    });
  const test = () =>
    perform("The receiver took the test event.", async () =>
      assertDelivered(await call<Sent>("POST", `${base}/test`, { body: { type: TESTED } })),
    );
  return (
    <>
      <p>
        <Link page="webhooks">← Webhooks</Link>
      </p>
      <PageHead title="Deliveries">
        <Button onClick={() => setRotating(true)}>Rotate secret</Button>
        <Button onClick={() => void test()}>Send test event</Button>
      </PageHead>
      {webhook.data !== undefined && (
        <Panel title="Webhook" aside={<WebhookState webhook={webhook.data} />}>
          <dl class="facts">
            <dt>Address</dt>
            <dd class="code">{webhook.data.url}</dd>
            <dt>Events</dt>
            <dd>{webhook.data.events.includes("*") ? "All" : webhook.data.events.join(", ")}</dd>
          </dl>
        </Panel>
      )}
      <div class="filters">
        <Choice
          label="State"
          value={status}
          options={[
            ["", "All deliveries"],
            ["pending", "Pending"],
            ["delivered", "Delivered"],
            ["failed", "Failed"],
            ["dropped", "Dropped"],
          ]}
          onChange={(value) => {
            setStatus(value);
            setBefore([]);
          }}
        />
      </div>
      <Panel isFlush>
        <Table
          label="Deliveries"
          columns={columns(redeliver)}
          rows={data?.data}
          error={error ?? webhook.error}
          keyOf={(delivery) => delivery.id}
          empty={
            <Empty title="Nothing was delivered yet.">
              <p>
                Events appear here as they happen. A test event shows whether the receiver answers.
              </p>
            </Empty>
          }
        />
        {data !== undefined && (
          <Pager
            first={before.length * PAGE}
            count={data.data.length}
            hasMore={data.has_more}
            onPrevious={before.length === 0 ? undefined : () => setBefore(before.slice(0, -1))}
            onNext={() => setBefore([...before, data.data.at(-1)!.id])}
          />
        )}
      </Panel>
      {isRotating && (
        <Confirm
          title="Rotate the signing secret?"
          action="Rotate secret"
          onClose={() => setRotating(false)}
          onConfirm={async () => {
            const rotated = await call<{ secret: string }>("POST", `${base}/rotate_secret`);
            setRotating(false);
            setSecret(rotated.secret);
          }}
        >
          The new secret is shown once. For 24 hours events carry signatures of both.
        </Confirm>
      )}
      {secret !== undefined && (
        <SecretDialog secret={secret} onClose={() => setSecret(undefined)} />
      )}
    </>
  );
}

interface Sent {
  readonly delivered: boolean;
  readonly status_code: number | null;
  readonly error: string | null;
}

function assertDelivered({ delivered, status_code: status, error }: Sent): void {
  if (!delivered) throw new Error(error ?? `the receiver answered with status ${status}`);
}

function columns(onRedeliver: (delivery: Delivery) => void): Column<Delivery>[] {
  return [
    {
      title: "Event",
      cell: ({ event_type, event_id }) => (
        <span>
          <span class="strong">{event_type}</span>
          <span class="sub code">{event_id}</span>
        </span>
      ),
    },
    { title: "State", cell: ({ status }) => <Badge tone={TONES[status]}>{status}</Badge> },
    {
      title: "Attempts",
      cell: ({ attempts }) =>
        attempts.length === 0 ? (
          <span class="quiet">None yet</span>
        ) : (
          <details>
            <summary>{attempts.length}</summary>
            <ol>
              {attempts.map((attempt) => (
                <li key={attempt.at}>
                  <Time iso={attempt.at} form="exact" />: {attempt.status_code ?? attempt.error},{" "}
                  {duration(attempt.latency_ms)}
                </li>
              ))}
            </ol>
          </details>
        ),
    },
    {
      title: "Last attempt",
      cell: ({ attempts }) => {
        const last = attempts.at(-1);
        if (last === undefined) return <Time iso={null} />;
        return (
          <span>
            <Time iso={last.at} />
            <span class={last.error === null ? "sub" : "sub bad"}>
              {last.error ?? `${last.status_code} in ${duration(last.latency_ms)}`}
            </span>
          </span>
        );
      },
    },
    {
      title: "Next attempt",
      isSecondary: true,
      cell: ({ next_attempt_at: next }) => <Time iso={next} />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (delivery) => (
        <Button
          variant="quiet"
          label={`Redeliver ${delivery.event_id}`}
          onClick={() => onRedeliver(delivery)}
        >
          Redeliver
        </Button>
      ),
    },
  ];
}
