import { Badge, Empty, PageHead, Panel } from "../components/display.tsx";
import { type Column, Table } from "../components/table.tsx";
import { duration, integer } from "../format.ts";
import { useResource } from "../resource.ts";

/** A provider as GET /v1/admin/providers lists it. */
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

const TONES = { ok: "good", degraded: "warn", down: "bad" } as const;

const COLUMNS: readonly Column<ProviderHealth>[] = [
  { title: "Provider", cell: ({ id }) => <span class="strong">{id}</span> },
  { title: "State", cell: ({ status }) => <Badge tone={TONES[status]}>{status}</Badge> },
  { title: "Models", isNumber: true, cell: ({ models }) => integer(models) },
  {
    title: "Running calls",
    isNumber: true,
    cell: ({ endpoints }) => integer(endpoints.reduce((sum, { running }) => sum + running, 0)),
  },
  {
    title: "Slowest endpoint",
    isNumber: true,
    isSecondary: true,
    cell: ({ endpoints }) => {
      const known = endpoints.flatMap(({ latency_ms: ms }) => ms ?? []);
      return known.length === 0 ? "—" : duration(Math.max(...known));
    },
  },
  {
    title: "Open circuits",
    cell: ({ endpoints }) => {
      const open = endpoints.filter(({ circuit }) => circuit !== "closed");
      return open.length === 0 ? (
        <span class="quiet">None</span>
      ) : (
        open.map(({ id }) => id).join(", ")
      );
    },
  },
];

/** The health of providers, as the instance that answers sees it. */
export function ProvidersPage() {
  const { data, error } = useResource<{ instance_id: string; data: ProviderHealth[] }>(
    "v1/admin/providers",
  );
  return (
    <>
      <PageHead title="Providers" />
      <Panel
        title="Health"
        aside={data && <span class="quiet">As {data.instance_id} sees it</span>}
        isFlush
      >
        <Table
          label="Providers"
          columns={COLUMNS}
          rows={data?.data}
          error={error}
          keyOf={({ id }) => id}
          empty={<Empty title="No provider is enabled." />}
        />
      </Panel>
    </>
  );
}
