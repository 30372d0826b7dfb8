import { useState } from "preact/hooks";
import { EVENT_TYPES } from "../../../lib/events/event-types.ts";
import { ApiError, call } from "../api.ts";
import { Button, Choice, Link } from "../components/controls.tsx";
import { Confirm, Dialog, Form, perform, toast } from "../components/dialog.tsx";
import {
  Badge,
  Empty,
  LoadFailure,
  Notice,
  PageHead,
  Panel,
  ShortId,
  Time,
} from "../components/display.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { duration, titled } from "../format.ts";
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
  readonly created_at: string;
  readonly waits_behind: {
    readonly event_id: string;
    readonly event_type: string;
    readonly attempts: number;
    readonly next_attempt_at: string | null;
  } | null;
}

const PAGE_SIZE = 50;
const TONES = { pending: "warn", delivered: "good", failed: "bad", dropped: "bad" } as const;
/** Time for which an event is stored for a disabled webhook. Part of the webhook contract. */
const RETENTION_MS = 3 * 86_400_000;

/** One webhook and its deliveries. */
export function DeliveriesPage({ id }: { readonly id: string }) {
  const [status, setStatus] = useState("");
  /** Last delivery of each previous page. */
  const [cursors, setCursors] = useState<readonly string[]>([]);
  const [openDialog, setOpenDialog] = useState<"rotate" | "test">();
  const [secret, setSecret] = useState<string>();
  const base = `v1/webhooks/${encodeURIComponent(id)}`;
  const webhook = useResource<Webhook>(base, true);
  const parameters = new URLSearchParams({ limit: String(PAGE_SIZE) });
  if (status !== "") parameters.set("status", status);
  if (cursors.length > 0) parameters.set("after", cursors.at(-1)!);
  const path = `${base}/deliveries?${parameters}`;
  const { data, error, reload } = useResource<{ data: Delivery[]; has_more: boolean }>(path, true);
  const close = () => setOpenDialog(undefined);
  const redeliver = (delivery: Delivery) =>
    perform("The event was delivered.", async () => {
      const sent = await call<Sent>("POST", `${base}/deliveries/${delivery.id}/redeliver`);
      reload();
      assertDelivered(sent);
    });
  return (
    <>
      <p class="back">
        <Link page="webhooks">← Webhooks</Link>
      </p>
      <PageHead title="Deliveries">
        <Button onClick={() => setOpenDialog("rotate")}>Rotate secret</Button>
        <Button onClick={() => setOpenDialog("test")}>Send test event</Button>
      </PageHead>
      {webhook.error !== undefined && <LoadFailure message={webhook.error} />}
      {webhook.data !== undefined && <About webhook={webhook.data} />}
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
            setCursors([]);
          }}
        />
      </div>
      <Panel isFlush>
        <Table
          label="Deliveries"
          columns={columns(webhook.data, redeliver)}
          rows={data?.data}
          error={error}
          keyOf={(delivery) => delivery.id}
          empty={<NoDelivery isFiltered={status !== ""} onTest={() => setOpenDialog("test")} />}
        />
        {data !== undefined && (
          <Pager
            first={cursors.length * PAGE_SIZE}
            count={data.data.length}
            hasMore={data.has_more}
            onPrevious={cursors.length === 0 ? undefined : () => setCursors(cursors.slice(0, -1))}
            onNext={() => setCursors([...cursors, data.data.at(-1)!.id])}
          />
        )}
      </Panel>
      {openDialog === "test" && <TestDialog base={base} webhook={webhook.data} onClose={close} />}
      {openDialog === "rotate" && (
        <Confirm
          title="Rotate the signing secret?"
          action="Rotate secret"
          onClose={close}
          onConfirm={async () => {
            const rotated = await call<{ secret: string }>("POST", `${base}/rotate_secret`);
            close();
            setSecret(rotated.secret);
          }}
        >
          The new secret is shown once. For 24 hours, events carry signatures of both secrets.
        </Confirm>
      )}
      {secret !== undefined && (
        <SecretDialog secret={secret} onClose={() => setSecret(undefined)} />
      )}
    </>
  );
}

function About({ webhook }: { readonly webhook: Webhook }) {
  return (
    <Panel title="Webhook" aside={<WebhookState webhook={webhook} />}>
      <dl class="facts">
        <dt>URL</dt>
        <dd class="code">{webhook.url}</dd>
        {webhook.description && (
          <>
            <dt>Description</dt>
            <dd>{webhook.description}</dd>
          </>
        )}
        <dt>Events</dt>
        <dd>{webhook.events.includes("*") ? "All" : webhook.events.join(", ")}</dd>
        {webhook.disabled_at !== null && (
          <>
            <dt>Off since</dt>
            <dd>
              <Time iso={webhook.disabled_at} form="exact" />
              {webhook.disabled_by === "failures" &&
                ", after six failed attempts to deliver one event"}
            </dd>
          </>
        )}
      </dl>
    </Panel>
  );
}

interface NoDeliveryProps {
  readonly isFiltered: boolean;
  onTest(): void;
}

function NoDelivery({ isFiltered, onTest }: NoDeliveryProps) {
  if (isFiltered) {
    return (
      <Empty title="No matching deliveries">
        <p>Choose another state to see other deliveries.</p>
      </Empty>
    );
  }
  return (
    <Empty title="No deliveries yet">
      <p>Events appear here as they happen. A test event shows whether the receiver answers.</p>
      <Button onClick={onTest}>Send a test event</Button>
    </Empty>
  );
}

interface Sent {
  readonly delivered: boolean;
  readonly status_code: number | null;
  readonly latency_ms: number;
  readonly error: string | null;
}

function assertDelivered({ delivered, status_code: status, error }: Sent): void {
  if (delivered) return;
  const reason = error ?? `the receiver answered with status ${status}`;
  throw new ApiError(0, "not_delivered", `Not delivered: ${reason}.`, null);
}

interface TestProps {
  readonly base: string;
  readonly webhook: Webhook | undefined;
  onClose(): void;
}

function TestDialog({ base, webhook, onClose }: TestProps) {
  const [type, setType] = useState<string>(
    EVENT_TYPES.find((type) => webhook?.events.includes(type)) ?? EVENT_TYPES[0]!,
  );
  const [sent, setSent] = useState<Sent>();
  const test = async () => {
    setSent(undefined);
    const answer = await call<Sent>("POST", `${base}/test`, { body: { type } });
    setSent(answer);
    if (answer.delivered) toast("The test event was delivered.");
  };
  return (
    <Dialog title="Send a test event" onClose={onClose}>
      <Form submit="Send" onCancel={onClose} onSubmit={test}>
        <Choice
          label="Event"
          value={type}
          options={EVENT_TYPES.map((type) => [type, type] as const)}
          onChange={setType}
        />
        <p class="quiet">
          The event contains sample data with <code>test: true</code>. It is signed like every
          event, sent once, and not listed here.
        </p>
        {sent !== undefined && (
          <Notice tone={sent.delivered ? "good" : "bad"}>
            {sent.delivered
              ? `Delivered: status ${sent.status_code}`
              : `Not delivered: ${sent.error ?? `status ${sent.status_code}`}`}{" "}
            in {duration(sent.latency_ms)}.
          </Notice>
        )}
      </Form>
    </Dialog>
  );
}

function columns(
  webhook: Webhook | undefined,
  onRedeliver: (delivery: Delivery) => void,
): Column<Delivery>[] {
  return [
    {
      title: "Event",
      cell: ({ event_type, event_id }) => (
        <span>
          <span class="strong">{event_type}</span>
          <ShortId id={event_id} isSub />
        </span>
      ),
    },
    {
      title: "State",
      isCorner: true,
      cell: ({ status }) => <Badge tone={TONES[status]}>{titled(status)}</Badge>,
    },
    { title: "Attempts", cell: ({ attempts }) => <Attempts attempts={attempts} /> },
    {
      title: "Next attempt",
      cell: (delivery) =>
        delivery.status === "pending" ? <Next delivery={delivery} webhook={webhook} /> : null,
    },
    {
      title: "Created",
      isSecondary: true,
      cell: ({ created_at: at }) => <Time iso={at} />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (delivery) => (
        <Button
          needs="webhooks:manage"
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

/** The last attempt, with the earlier ones folded. */
function Attempts({ attempts }: Pick<Delivery, "attempts">) {
  const last = attempts.at(-1);
  if (last === undefined) return <span class="quiet">None</span>;
  if (attempts.length === 1) return <OneAttempt attempt={last} />;
  return (
    <details class="fold">
      <summary>
        <OneAttempt attempt={last} /> <span class="quiet">and {attempts.length - 1} earlier</span>
      </summary>
      <ol>
        {attempts.map((attempt) => (
          <li key={attempt.at}>
            <Time iso={attempt.at} form="exact" />:{" "}
            {attempt.error ?? `status ${attempt.status_code}`}, {duration(attempt.latency_ms)}
          </li>
        ))}
      </ol>
    </details>
  );
}

function OneAttempt({ attempt }: { readonly attempt: Attempt }) {
  const { at, error, status_code: status, latency_ms: latencyMs } = attempt;
  return (
    <span>
      <Time iso={at} />
      <span class={error === null ? "sub" : "sub bad"}>
        {error ?? `Status ${status}`}, {duration(latencyMs)}
      </span>
    </span>
  );
}

interface NextProps {
  readonly delivery: Delivery;
  readonly webhook: Webhook | undefined;
}

/** The time of the next attempt, or the reason why a delivery waits. */
function Next({ delivery, webhook }: NextProps) {
  const { attempts, next_attempt_at: nextAt, waits_behind: head } = delivery;
  if (webhook?.disabled_at) {
    const sinceMs = Math.max(Date.parse(webhook.disabled_at), Date.parse(delivery.created_at));
    return (
      <span>
        The webhook is off
        <span class="sub">
          expires <Time iso={new Date(sinceMs + RETENTION_MS).toISOString()} />
        </span>
      </span>
    );
  }
  if (head === null) {
    return nextAt === null || attempts.length === 0 ? (
      <span>Being sent</span>
    ) : (
      <Time iso={nextAt} />
    );
  }
  return (
    <span title={head.event_id}>
      Waits for {head.event_type}
      <span class="sub">
        {head.attempts > 0 && "which failed and is retried "}
        {head.attempts > 0 && head.next_attempt_at && <Time iso={head.next_attempt_at} />}
        {head.attempts === 0 && "which is being sent"}
      </span>
    </span>
  );
}
