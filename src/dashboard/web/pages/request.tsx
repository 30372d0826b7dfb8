import { Link } from "../components/controls.tsx";
import { Badge, Fact, LoadFailure, Notice, PageHead, Panel, Time } from "../components/display.tsx";
import { type Column, Table } from "../components/table.tsx";
import { duration, integer, titled, usdExact } from "../format.ts";
import { useResource } from "../resource.ts";
import { isSelfOnly, mayRead } from "../rights.ts";
import { query } from "../router.ts";
import { meaningOf } from "./error-codes.ts";
import { useKeyNames } from "./key-names.ts";
import { type ListedRequest, Status } from "./requests.tsx";

interface Attempt {
  readonly endpoint: string;
  readonly result: string;
  readonly status?: number;
  readonly ms: number;
}

/** A request in the answer of GET /v1/requests/:id. */
interface ShownRequest extends ListedRequest {
  readonly transaction_id: string | null;
  readonly estimated: boolean | null;
  readonly provider_key_id: string | null;
  readonly list_price_usd: number | null;
  readonly queue_ms: number | null;
  readonly first_token_ms: number | null;
  readonly routing: {
    readonly tries: readonly Attempt[];
    readonly postponed?: readonly string[];
    readonly full?: readonly string[];
  } | null;
}

/** One request: caller, routing and its reasons, times, usage and cost. */
export function RequestDetail({ id }: { readonly id: string }) {
  const { data, error } = useResource<ShownRequest>(`v1/requests/${encodeURIComponent(id)}`);
  return (
    <>
      <p class="back">
        <Link page="requests" query={{ ...Object.fromEntries(query.value), id: undefined }}>
          ← Requests
        </Link>
      </p>
      <PageHead title="Request" />
      {error !== undefined && <LoadFailure message={error} />}
      {data !== undefined && (
        <>
          <div class="columns">
            <Outcome request={data} />
            <UsagePanel request={data} />
          </div>
          <div class={data.routing === null ? "columns" : undefined}>
            <Route request={data} />
            <Times request={data} />
          </div>
        </>
      )}
    </>
  );
}

interface PartProps {
  readonly request: ShownRequest;
}

function Outcome({ request }: PartProps) {
  const keyName = useKeyNames();
  const { error_code: code, key_id: keyId, provider_key_id: byokKeyId } = request;
  const meaning = code === null ? undefined : meaningOf(code);
  return (
    <Panel title="Outcome" aside={<Status request={{ ...request, error_code: null }} />}>
      {code !== null && (
        <Notice tone={(request.status ?? 0) >= 500 ? "bad" : "warn"}>
          <code>{code}</code>
          {meaning && `: ${meaning.text} `}
          {meaning?.page !== undefined && <Link page={meaning.page}>{meaning.action}</Link>}
        </Notice>
      )}
      <dl class="facts">
        <Fact name="Id" value={<span class="code">{request.id}</span>} />
        <Fact name="Ended" value={<Time iso={request.created_at} form="exact" />} />
        <Fact name="Model" value={request.model} />
        <Fact name="Provider" value={request.provider} />
        <Fact
          name="Key"
          value={
            <Link page="requests" query={{ key_id: keyId ?? undefined }}>
              {keyName(keyId)}
            </Link>
          }
        />
        <Fact
          name="User"
          value={
            request.user && (
              <Link page="requests" query={{ user: request.user }}>
                {request.user}
              </Link>
            )
          }
        />
        <Fact
          name="Session"
          value={
            request.session_id && (
              <Link page="requests" query={{ session_id: request.session_id }}>
                {request.session_id}
              </Link>
            )
          }
        />
        <Fact name="BYOK key" value={byokKeyId && <span class="code">{byokKeyId}</span>} />
      </dl>
    </Panel>
  );
}

function Times({ request }: PartProps) {
  const { queue_ms: queueMs, first_token_ms: firstTokenMs, latency_ms: latencyMs } = request;
  const wasCalled = request.provider !== null || request.routing !== null;
  return (
    <Panel title="Times">
      <dl class="facts">
        <Fact
          name="Queue time"
          value={queueMs === null ? wasCalled && "Under 20 ms" : duration(queueMs)}
        />
        <Fact name="First token" value={firstTokenMs !== null && duration(firstTokenMs)} />
        <Fact name="Total" value={latencyMs !== null && duration(latencyMs)} />
      </dl>
      {firstTokenMs !== null && queueMs !== null && (
        <p class="quiet under">For streams, first token and total do not include the queue time.</p>
      )}
    </Panel>
  );
}

const QUANTITIES: Readonly<Record<string, string>> = {
  prompt_tokens: "Prompt tokens",
  cached_tokens: "Cached tokens",
  completion_tokens: "Completion tokens",
  reasoning_tokens: "Reasoning tokens",
  total_tokens: "Total tokens",
};
const ORDER = Object.keys(QUANTITIES);

function UsagePanel({ request }: PartProps) {
  const { usage, cost_usd: costUsd, list_price_usd: listUsd, transaction_id: charge } = request;
  if (usage === null) {
    return (
      <Panel title="Usage and cost">
        <p class="quiet">Nothing was charged.</p>
      </Panel>
    );
  }
  const others = Object.keys(usage).filter((name) => !ORDER.includes(name));
  return (
    <Panel title="Usage and cost">
      <dl class="facts">
        {[...ORDER, ...others].map((name) => (
          <Fact
            key={name}
            name={QUANTITIES[name] ?? titled(name)}
            value={usage[name] != null && integer(usage[name])}
          />
        ))}
        <Fact name="Cost" value={usdExact(costUsd)} />
        <Fact name="Billed by the provider" value={listUsd !== null && usdExact(listUsd)} />
        <Fact name="Transaction" value={charge && <Charge id={charge} />} />
      </dl>
      {request.estimated && (
        <p class="quiet under">
          The provider reported no usage, so the gateway counted the tokens.
        </p>
      )}
    </Panel>
  );
}

/** The transaction of the charge, with a link for sessions that may see all transactions. */
function Charge({ id }: { readonly id: string }) {
  if (isSelfOnly() || !mayRead("billing:read")) return <span class="code">{id}</span>;
  return (
    <Link page="transactions" query={{ search: id }} class="code">
      {id}
    </Link>
  );
}

const REASONS: Readonly<Record<string, string>> = {
  ok: "The provider answered.",
  rejected: "The provider rejected the request as invalid.",
  misconfigured: "The provider rejected the key or does not have the model.",
  rate_limited: "The provider's rate limit was reached.",
  timeout: "The provider did not answer in time.",
  unavailable: "The provider was unreachable or answered with an error.",
  content_policy: "The provider's safety filter blocked the prompt.",
  aborted: "The client closed the connection.",
};

const resultTitle = (result: string) => (result === "ok" ? "OK" : titled(result));

const ATTEMPT_COLUMNS: readonly Column<Attempt & { readonly position: number }>[] = [
  { title: "Endpoint", cell: ({ endpoint }) => <span class="code">{endpoint}</span> },
  {
    title: "Result",
    isCorner: true,
    cell: ({ result }) => (
      <Badge tone={result === "ok" ? "good" : "warn"}>{resultTitle(result)}</Badge>
    ),
  },
  {
    title: "Reason",
    cell: ({ result, status }) => (
      <span>
        {REASONS[result] ?? result}
        {status !== undefined && <span class="quiet"> Status {status}</span>}
      </span>
    ),
  },
  { title: "Duration", isNumber: true, cell: ({ ms }) => duration(ms) },
];

/** The attempted endpoints and the reasons for them. */
function Route({ request: { routing, provider } }: PartProps) {
  if (routing === null) {
    return (
      <Panel title="Route">
        <p class="quiet">
          {provider === null
            ? "The gateway answered without calling a provider."
            : `The first endpoint in routing order answered at the first attempt: ${provider}.`}
        </p>
      </Panel>
    );
  }
  const { tries, postponed = [], full = [] } = routing;
  return (
    <Panel title="Route" isFlush>
      <Table
        label="Attempts"
        columns={ATTEMPT_COLUMNS}
        rows={tries.map((attempt, position) => ({ ...attempt, position }))}
        keyOf={({ position }) => String(position)}
        empty={<p class="empty">No provider was called.</p>}
      />
      {(postponed.length > 0 || full.length > 0) && (
        <dl class="facts padded">
          <Fact
            name="Tried last (unhealthy)"
            value={postponed.length > 0 && <span class="code">{postponed.join(", ")}</span>}
          />
          <Fact
            name="Skipped (at capacity)"
            value={full.length > 0 && <span class="code">{full.join(", ")}</span>}
          />
        </dl>
      )}
    </Panel>
  );
}
