import { useState } from "preact/hooks";
import { Button, Choice, Field, Link } from "../components/controls.tsx";
import { Badge, Empty, PageHead, Panel, Time } from "../components/display.tsx";
import { RangePicker } from "../components/range-picker.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { download } from "../download.ts";
import { duration, integer, usdFine } from "../format.ts";
import { parseRange } from "../range.ts";
import { useResource } from "../resource.ts";
import { mayRead } from "../rights.ts";
import { changeQuery, query } from "../router.ts";
import { ERROR_CODES } from "./error-codes.ts";
import { useKeyNames } from "./key-names.ts";
import { useMembers, useTeams } from "./people/names.ts";
import { RequestDetail } from "./request.tsx";

interface RequestUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly cached_tokens: number | null;
  readonly reasoning_tokens: number | null;
  /** Other quantities that are not zero. */
  readonly [quantity: string]: number | null;
}

export interface ListedRequest {
  readonly id: string;
  readonly key_id: string | null;
  readonly model: string | null;
  readonly provider: string | null;
  readonly status: number | null;
  readonly error_code: string | null;
  readonly user: string | null;
  readonly session_id: string | null;
  readonly usage: RequestUsage | null;
  readonly cost_usd: number;
  readonly latency_ms: number | null;
  /** The organization's own provider key that served it. */
  readonly provider_key_id: string | null;
  readonly created_at: string;
}

interface RequestPage {
  readonly data: readonly ListedRequest[];
  readonly has_more: boolean;
  /** Cursor of the next page. */
  readonly last_id: string | null;
}

const PAGE_SIZE = 50;
const FILTERS = [
  ...(["key_id", "team_id", "member_id", "model", "status", "min_status"] as const),
  ...(["error_code", "user", "session_id"] as const),
] as const;
type Filter = (typeof FILTERS)[number];
/** Parameters of the query that state the range. */
const RANGE = ["range", "from", "to"] as const;
/** Lowest status of a request that counts as an error. */
const ERROR_STATUS = "400";
const STATUSES = ["200", "400", "402", "404", "408", "429", "499", "502", "503"];

/** The list of requests, or one request. */
export function RequestsPage() {
  const id = query.value.get("id");
  return id === null ? <RequestList /> : <RequestDetail id={id} />;
}

/** Cursors of the previous pages, of the list with these filters. */
interface Cursors {
  readonly filters: string;
  readonly ids: readonly string[];
}

function RequestList() {
  const urlQuery = query.value;
  const range = parseRange(urlQuery, Date.now());
  const filters = new URLSearchParams();
  for (const name of FILTERS) if (urlQuery.get(name)) filters.set(name, urlQuery.get(name)!);
  if (range !== undefined) {
    filters.set("start_date", new Date(range.fromMs).toISOString());
    // The list includes the end.
    filters.set("end_date", new Date(range.beforeMs - 1).toISOString());
  }
  const parameters = new URLSearchParams([...filters, ["limit", String(PAGE_SIZE)]]);
  const [visited, setVisited] = useState<Cursors>({ filters: String(filters), ids: [] });
  const cursors = visited.filters === String(filters) ? visited.ids : [];
  const setCursors = (ids: readonly string[]) => setVisited({ filters: String(filters), ids });
  if (cursors.length > 0) parameters.set("after", cursors.at(-1)!);
  const { data, error } = useResource<RequestPage>(
    `v1/requests?${parameters}`,
    cursors.length === 0,
  );
  const keyName = useKeyNames();
  const filter = (name: Filter) => (value: string) =>
    changeQuery({ [name]: value === "" ? undefined : value });
  const isFiltered = [...FILTERS, ...RANGE].some((name) => urlQuery.get(name));
  const clear = () =>
    changeQuery(Object.fromEntries([...FILTERS, ...RANGE].map((name) => [name, undefined])));
  return (
    <>
      <PageHead title="Requests">
        {isFiltered && <Button onClick={clear}>Clear filters</Button>}
        <Button onClick={() => void download(`v1/requests?${filters}&format=csv`, "requests.csv")}>
          Download CSV
        </Button>
      </PageHead>
      <RangePicker range={range} isOptional />
      <Filters filter={filter} />
      <Panel isFlush>
        <Table
          label="Requests"
          columns={columns(keyName)}
          rows={data?.data}
          error={error}
          keyOf={(request) => request.id}
          empty={<NoRequests isFiltered={isFiltered} hasMore={data?.has_more === true} />}
        />
        {data !== undefined && (
          <Pager
            first={cursors.length * PAGE_SIZE}
            count={data.data.length}
            hasMore={data.has_more && data.last_id !== null}
            onPrevious={cursors.length === 0 ? undefined : () => setCursors(cursors.slice(0, -1))}
            onNext={() => setCursors([...cursors, data.last_id!])}
          />
        )}
      </Panel>
    </>
  );
}

function NoRequests({ isFiltered, hasMore }: { isFiltered: boolean; hasMore: boolean }) {
  if (hasMore) {
    return (
      <Empty title="No matches among the newest requests">
        <p>
          Each page searches some thousand requests. Choose Next to search older ones, or choose a
          period.
        </p>
      </Empty>
    );
  }
  if (isFiltered) {
    return (
      <Empty title="No matching requests">
        <p>Clear the filters to see other requests.</p>
      </Empty>
    );
  }
  return (
    <Empty title="No requests yet">
      <p>
        Send one with a <Link page="keys">key</Link>, or try a model in the{" "}
        <Link page="playground">playground</Link>. Requests appear here as they end.
      </p>
    </Empty>
  );
}

/** The filters by everything but time. */
function Filters({ filter }: { filter(name: Filter): (value: string) => void }) {
  const text = (name: Filter) => query.value.get(name) ?? "";
  const teams = useTeams().data?.data ?? [];
  const members = useMembers().data?.data ?? [];
  const isAnyError = text("status") === "" && text("min_status") === ERROR_STATUS;
  const chooseStatus = (value: string) =>
    changeQuery({
      status: value === ANY_ERROR ? undefined : value,
      min_status: value === ANY_ERROR ? ERROR_STATUS : undefined,
    });
  const named = (list: readonly { readonly id: string; readonly name: string }[]) =>
    list.map(({ id, name }) => [id, name] as const);
  return (
    <div class="filters">
      <Field label="Model" value={text("model")} onInput={filter("model")} placeholder="Any" />
      <KeyChoice value={text("key_id")} onChange={filter("key_id")} />
      {(teams.length > 0 || text("team_id") !== "") && (
        <Choice
          label="Team"
          value={text("team_id")}
          options={withChosen(named(teams), text("team_id"))}
          onChange={filter("team_id")}
        />
      )}
      {(members.length > 1 || text("member_id") !== "") && (
        <Choice
          label="Member"
          value={text("member_id")}
          options={withChosen(named(members), text("member_id"))}
          onChange={filter("member_id")}
        />
      )}
      <Choice
        label="Status"
        value={isAnyError ? ANY_ERROR : text("status")}
        options={[
          ["", "Any"],
          [ANY_ERROR, "Any error"],
          ...STATUSES.map((status) => [status, status] as const),
        ]}
        onChange={chooseStatus}
      />
      <Field
        label="Error code"
        value={text("error_code")}
        onInput={filter("error_code")}
        placeholder="Any"
        suggestions={ERROR_CODES}
      />
      <Field label="User" value={text("user")} onInput={filter("user")} placeholder="Any" />
    </div>
  );
}

const ANY_ERROR = "errors";

/** Returns the options of a filter. A chosen id that is not listed is an option, too. */
function withChosen(listed: readonly (readonly [id: string, name: string])[], chosen: string) {
  const isListed = chosen === "" || listed.some(([id]) => id === chosen);
  const further = isListed ? [] : [[chosen, chosen] as const];
  return [["", "Any"] as const, ...listed, ...further];
}

interface KeyChoiceProps {
  readonly value: string;
  onChange(id: string): void;
}

const MAX_KEYS = 1_000;

export function KeyChoice({ value, onChange }: KeyChoiceProps) {
  const { data } = useResource<{ data: { id: string; name: string }[] }>(
    mayRead("keys:manage") ? `v1/keys?limit=${MAX_KEYS}` : undefined,
  );
  const keys = (data?.data ?? []).map(({ id, name }) => [id, name] as const);
  return <Choice label="Key" value={value} options={withChosen(keys, value)} onChange={onChange} />;
}

function columns(keyName: (id: string | null) => string): Column<ListedRequest>[] {
  return [
    {
      title: "Time",
      cell: ({ id, created_at: at }) => (
        <Link page="requests" query={{ id, ...Object.fromEntries(query.value) }}>
          <Time iso={at} form="exact" />
        </Link>
      ),
    },
    { title: "Status", isCorner: true, cell: (request) => <Status request={request} /> },
    {
      title: "Model",
      cell: ({ model, provider }) => (
        <span>
          {model ?? <span class="quiet">None</span>}
          {provider && <span class="sub">{provider}</span>}
        </span>
      ),
    },
    { title: "Key", isSecondary: true, cell: ({ key_id: id }) => keyName(id) },
    {
      title: "Tokens",
      isNumber: true,
      isSecondary: true,
      cell: ({ usage }) =>
        usage === null ? (
          <span class="quiet">—</span>
        ) : (
          `${integer(usage.prompt_tokens)} → ${integer(usage.completion_tokens)}`
        ),
    },
    {
      title: "Latency",
      isNumber: true,
      cell: ({ latency_ms: ms }) => (ms === null ? "—" : duration(ms)),
    },
    { title: "Cost", isNumber: true, cell: costText },
  ];
}

/** Formats the charge. A dash says that nothing was charged. */
export function costText({
  cost_usd: cost,
  provider_key_id: providerKeyId,
}: Pick<ListedRequest, "cost_usd" | "provider_key_id">) {
  if (cost !== 0) return usdFine(cost);
  return providerKeyId === null ? (
    "—"
  ) : (
    <span title="Served by your own provider key">Own key</span>
  );
}

interface StatusProps {
  readonly request: Pick<ListedRequest, "status" | "error_code">;
}

export function Status({ request: { status, error_code: code } }: StatusProps) {
  const tone = status === null || status < 400 ? "good" : status >= 500 ? "bad" : "warn";
  return (
    <span class="stacked">
      <Badge tone={tone}>{status ?? "—"}</Badge>
      {code && <span class="sub">{code}</span>}
    </span>
  );
}
