import { useState } from "preact/hooks";
import { Button, Choice, Field, Link } from "../components/controls.tsx";
import { Badge, Empty, PageHead, Panel, Time } from "../components/display.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { download } from "../download.ts";
import { duration, integer, usdFine } from "../format.ts";
import { useResource } from "../resource.ts";
import { mayRead } from "../rights.ts";
import { changeQuery, query } from "../router.ts";
import { useKeyNames } from "./key-names.ts";
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
  readonly created_at: string;
}

interface RequestPage {
  readonly data: readonly ListedRequest[];
  readonly has_more: boolean;
  /** Cursor of the next page. */
  readonly last_id: string | null;
}

const PAGE_SIZE = 50;
const FILTERS = ["key_id", "model", "status", "error_code", "user", "session_id"] as const;

/** The list of requests, or one request. */
export function RequestsPage() {
  const id = query.value.get("id");
  return id === null ? <RequestList /> : <RequestDetail id={id} />;
}

function RequestList() {
  /** Cursors of the previous pages. */
  const [cursors, setCursors] = useState<readonly string[]>([]);
  const urlQuery = query.value;
  const filters = new URLSearchParams();
  for (const name of FILTERS) if (urlQuery.get(name)) filters.set(name, urlQuery.get(name)!);
  const parameters = new URLSearchParams([...filters, ["limit", String(PAGE_SIZE)]]);
  if (cursors.length > 0) parameters.set("after", cursors.at(-1)!);
  const { data, error } = useResource<RequestPage>(
    `v1/requests?${parameters}`,
    cursors.length === 0,
  );
  const keyName = useKeyNames();
  const filter = (name: (typeof FILTERS)[number]) => (value: string) => {
    setCursors([]);
    changeQuery({ [name]: value === "" ? undefined : value });
  };
  const isFiltered = FILTERS.some((name) => urlQuery.get(name));
  const clear = () => {
    setCursors([]);
    changeQuery(Object.fromEntries(FILTERS.map((name) => [name, undefined])));
  };
  return (
    <>
      <PageHead title="Requests">
        {isFiltered && <Button onClick={clear}>Clear filters</Button>}
        <Button onClick={() => void download(`v1/requests?${filters}&format=csv`, "requests.csv")}>
          Download CSV
        </Button>
      </PageHead>
      <div class="filters">
        <Field
          label="Model"
          value={urlQuery.get("model") ?? ""}
          onInput={filter("model")}
          placeholder="Any"
        />
        <KeyChoice value={urlQuery.get("key_id") ?? ""} onChange={filter("key_id")} />
        <Choice
          label="Status"
          value={urlQuery.get("status") ?? ""}
          options={[
            ["", "Any"],
            ...["200", "400", "402", "404", "408", "429", "499", "502", "503"].map(
              (status) => [status, status] as const,
            ),
          ]}
          onChange={filter("status")}
        />
        <Field
          label="Error code"
          value={urlQuery.get("error_code") ?? ""}
          onInput={filter("error_code")}
          placeholder="Any"
        />
        <Field
          label="User"
          value={urlQuery.get("user") ?? ""}
          onInput={filter("user")}
          placeholder="Any"
        />
      </div>
      <Panel isFlush>
        <Table
          label="Requests"
          columns={columns(keyName)}
          rows={data?.data}
          error={error}
          keyOf={(request) => request.id}
          empty={
            <Empty title={isFiltered ? "No matching requests" : "No requests yet"}>
              {isFiltered ? (
                <p>Clear the filters to see other requests.</p>
              ) : (
                <p>
                  Send one with a <Link page="keys">key</Link>, or try a model in the{" "}
                  <Link page="playground">playground</Link>. Requests appear here as they end.
                </p>
              )}
            </Empty>
          }
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
  const isListed = value === "" || keys.some(([id]) => id === value);
  return (
    <Choice
      label="Key"
      value={value}
      options={[["", "Any"], ...keys, ...(isListed ? [] : [[value, value] as const])]}
      onChange={onChange}
    />
  );
}

function columns(keyName: (id: string | null) => string): Column<ListedRequest>[] {
  return [
    {
      title: "Time",
      cell: ({ id, created_at: at }) => (
        <Link page="requests" query={{ id }}>
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
    { title: "Cost", isNumber: true, cell: ({ cost_usd: cost }) => usdFine(cost) },
  ];
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
