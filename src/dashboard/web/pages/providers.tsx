import { Button } from "../components/controls.tsx";
import { Badge, Empty, PageHead, Panel } from "../components/display.tsx";
import { type Column, Table } from "../components/table.tsx";
import { duration, integer } from "../format.ts";
import { useResource } from "../resource.ts";

/** A provider in the answer of GET /v1/admin/providers. */
interface ProviderHealth {
  readonly id: string;
  readonly models: number;
  readonly status: "ok" | "degraded" | "down";
  readonly endpoints: readonly {
    readonly id: string;
    readonly circuit: "closed" | "open" | "half-open";
    readonly running: number;
    readonly latency_ms: number | null;
  }[];
}

const STATES = {
  ok: ["good", "Healthy"],
  degraded: ["warn", "Degraded"],
  down: ["bad", "Down"],
} as const;

const COLUMNS: readonly Column<ProviderHealth>[] = [
  { title: "Provider", cell: ({ id }) => <span class="strong">{id}</span> },
  {
    title: "State",
    isCorner: true,
    cell: ({ status }) => <Badge tone={STATES[status][0]}>{STATES[status][1]}</Badge>,
  },
  { title: "Models", isNumber: true, cell: ({ models }) => integer(models) },
  {
    title: "Running calls",
    isNumber: true,
    cell: ({ endpoints }) => integer(endpoints.reduce((sum, { running }) => sum + running, 0)),
  },
  {
    title: "Endpoints",
    cell: ({ endpoints }) => <Endpoints endpoints={endpoints} />,
  },
];

/** The endpoints of a provider. Failing endpoints come first. The list is folded if none is failing. */
function Endpoints({ endpoints }: Pick<ProviderHealth, "endpoints">) {
  const open = endpoints.filter(({ circuit }) => circuit !== "closed");
  if (endpoints.length === 0) return <span class="quiet">None</span>;
  return (
    <details class="fold" open={open.length > 0}>
      <summary>
        {endpoints.length === 1 ? "1 endpoint" : `${integer(endpoints.length)} endpoints`}
        {open.length > 0 && <span class="bad">, {open.length} failing</span>}
      </summary>
      <ul class="plain">
        {[...open, ...endpoints.filter((item) => !open.includes(item))].map((endpoint) => (
          <li key={endpoint.id}>
            <span class="code">{endpoint.id}</span>{" "}
            {endpoint.circuit !== "closed" && <Badge tone="bad">circuit {endpoint.circuit}</Badge>}
            <span class="sub">
              {endpoint.latency_ms === null ? "No answer yet" : duration(endpoint.latency_ms)},{" "}
              {integer(endpoint.running)} running
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** The health of providers, as seen by the instance that answers. */
export function ProvidersPage() {
  const { data, error, reload } = useResource<{ instance_id: string; data: ProviderHealth[] }>(
    "v1/admin/providers",
  );
  return (
    <>
      <PageHead title="Providers">
        <Button onClick={reload}>Refresh</Button>
      </PageHead>
      <Panel
        title="Health"
        aside={
          data && (
            <span class="quiet" title={data.instance_id}>
              As seen by one instance
            </span>
          )
        }
        isFlush
      >
        <Table
          label="Providers"
          columns={COLUMNS}
          rows={data?.data}
          error={error}
          keyOf={({ id }) => id}
          empty={
            <Empty title="No providers enabled">
              <p>
                Set the key of a provider in the gateway's environment, such as{" "}
                <code>OPENAI_API_KEY</code>, and restart it.
              </p>
            </Empty>
          }
        />
      </Panel>
    </>
  );
}
