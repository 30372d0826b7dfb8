import { useMemo, useState } from "preact/hooks";
import { Button, Choice, Field, Link } from "../components/controls.tsx";
import { Badge, Empty, PageHead, Panel } from "../components/display.tsx";
import { Mark } from "../components/icon.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { integer } from "../format.ts";
import {
  type ConfiguredModel,
  effectiveOf,
  MODELS_PATH,
  organizationsSeeing,
  type RestrictedProviders,
  restrictedOf,
  type VisibleProvider,
  visibilityText,
} from "../models/configured-model.ts";
import { PRICE_COLUMNS, type Pricing } from "../models/prices.tsx";
import { useResource } from "../resource.ts";
import { changeQuery, query } from "../router.ts";
import type { Alias } from "./aliases.tsx";
import { SOURCES } from "./configuration-entry.tsx";
import { ConfiguredModelPage } from "./configured-model.tsx";
import { ModelDialog } from "./configured-model-dialog.tsx";
import { PROVIDERS_PATH } from "./provider-dialog.tsx";

/** A row of the list. */
interface Row {
  readonly model: ConfiguredModel;
  readonly pricing: Pricing;
  readonly providers: readonly string[];
  /** The organizations that see the model. Undefined: all. */
  readonly organizations: readonly string[] | undefined;
  /** The aliases that name the model. */
  readonly aliases: readonly string[];
}

const PAGE_SIZE = 50;
const SOURCES_OF_MODELS = ["file", "stored", "built_in", "provider_list"] as const;

/** The models of all sources with their prices and visibility, or one of them. For operators. */
export function ConfiguredModelsPage() {
  const [isAdding, setAdding] = useState(false);
  const { data, error, reload } = useResource<{ data: ConfiguredModel[] }>(MODELS_PATH);
  const aliasList = useResource<{ data: Alias[] }>("v1/admin/aliases");
  const providerList = useResource<{ data: VisibleProvider[] }>(PROVIDERS_PATH);
  const aliases = aliasList.data?.data;
  const providers = providerList.data?.data;
  const restricted = useMemo(() => restrictedOf(providers ?? []), [providers]);
  const rows = useMemo(
    () => data && providers && rowsOf(data.data, restricted, aliases ?? []),
    [data, restricted, aliases],
  );
  const refresh = () => {
    reload();
    aliasList.reload();
    providerList.reload();
  };
  const id = query.value.get("id");
  if (id !== null) {
    return <ConfiguredModelPage {...{ id, aliases, restricted }} onChanged={reload} />;
  }
  return (
    <>
      <PageHead title="Models">
        <Button onClick={refresh}>Refresh</Button>
        <Button needs="operator" variant="primary" onClick={() => setAdding(true)}>
          Add model
        </Button>
      </PageHead>
      <ModelList rows={rows} error={error ?? providerList.error} />
      {isAdding && (
        <ModelDialog edited={undefined} onChanged={reload} onClose={() => setAdding(false)} />
      )}
    </>
  );
}

function rowsOf(
  models: readonly ConfiguredModel[],
  restricted: RestrictedProviders,
  aliases: readonly Alias[],
): Row[] {
  const aliasesByModel = new Map<string, string[]>();
  for (const alias of aliases) {
    for (const { id } of alias.models) {
      aliasesByModel.set(id, [...(aliasesByModel.get(id) ?? []), alias.id]);
    }
  }
  const byId = models.toSorted((left, right) => left.id.localeCompare(right.id));
  return byId.map((model) => {
    const { pricing, endpoints } = effectiveOf(model);
    const providers = [...new Set(endpoints.map(({ provider }) => provider))];
    return {
      model,
      pricing,
      providers,
      organizations: organizationsSeeing(model, restricted),
      aliases: aliasesByModel.get(model.id) ?? [],
    };
  });
}

interface ModelListProps {
  readonly rows: readonly Row[] | undefined;
  readonly error: string | undefined;
}

function ModelList({ rows, error }: ModelListProps) {
  const urlQuery = query.value;
  const text = urlQuery.get("q") ?? "";
  const source = urlQuery.get("source") ?? "";
  const provider = urlQuery.get("provider") ?? "";
  const matches = useMemo(
    () => rows?.filter((row) => isMatch(row, { text, source, provider })),
    [rows, text, source, provider],
  );
  const providers = useMemo(
    () => [...new Set(rows?.flatMap((row) => row.providers))].toSorted(),
    [rows],
  );
  const total = matches?.length ?? 0;
  const lastPage = PAGE_SIZE * Math.floor(Math.max(0, total - 1) / PAGE_SIZE);
  const first = Math.min(Number(urlQuery.get("offset") ?? 0) || 0, lastPage);
  const shown = matches?.slice(first, first + PAGE_SIZE);
  const change = (changed: Readonly<Record<string, string>>) =>
    changeQuery({ offset: undefined, ...changed });
  return (
    <>
      <div class="filters models">
        <Field
          label="Search"
          type="search"
          value={text}
          onInput={(value) => change({ q: value })}
          placeholder="Model, provider or alias"
        />
        <Choice
          label="Source"
          value={source}
          options={[
            ["", "Any"],
            ...SOURCES_OF_MODELS.map((name) => [name, SOURCES[name]] as const),
          ]}
          onChange={(value) => change({ source: value })}
        />
        <Choice
          label="Provider"
          value={provider}
          options={[["", "Any"], ...providers.map((name) => [name, name] as const)]}
          onChange={(value) => change({ provider: value })}
        />
      </div>
      <Panel
        title={matches === undefined ? "Models" : titleOf(total)}
        aside={<span class="quiet">Token prices per million tokens</span>}
        isFlush
      >
        <Table
          label="Models"
          columns={COLUMNS}
          rows={shown}
          error={error}
          keyOf={({ model }) => model.id}
          empty={
            <Empty title={rows?.length === 0 ? "No models yet" : "No matching models"}>
              <p>
                {rows?.length === 0
                  ? "Add a provider. Then its models are listed here."
                  : "Use fewer search terms or clear filters."}
              </p>
            </Empty>
          }
        />
        <Pager
          first={first}
          count={shown?.length ?? 0}
          total={total}
          hasMore={first + PAGE_SIZE < total}
          onPrevious={
            first === 0 ? undefined : () => changeQuery({ offset: String(first - PAGE_SIZE) })
          }
          onNext={() => changeQuery({ offset: String(first + PAGE_SIZE) })}
        />
      </Panel>
    </>
  );
}

function titleOf(count: number): string {
  return count === 1 ? "1 model" : `${integer(count)} models`;
}

interface Filter {
  readonly text: string;
  readonly source: string;
  readonly provider: string;
}

function isMatch({ model, providers, aliases }: Row, filter: Filter): boolean {
  if (filter.source !== "" && model.source !== filter.source) return false;
  if (filter.provider !== "" && !providers.includes(filter.provider)) return false;
  const searched = [model.id, effectiveOf(model).name, ...providers, ...aliases];
  const searchedText = searched.join(" ").toLowerCase();
  return filter.text
    .toLowerCase()
    .split(/\s+/)
    .every((term) => searchedText.includes(term));
}

const COLUMNS: readonly Column<Row>[] = [
  {
    title: "Model",
    cell: ({ model }) => (
      <span class="with-mark">
        <Mark of={model.id} />
        <span>
          <Link
            page="configured-models"
            query={{ ...Object.fromEntries(query.value), id: model.id }}
            class="strong"
          >
            {effectiveOf(model).name}
          </Link>
          <span class="sub code">{model.id}</span>
        </span>
      </span>
    ),
  },
  {
    title: "Source",
    isCorner: true,
    cell: ({ model }) => (
      <span class="stacked">
        <Badge tone={model.source === "stored" ? "good" : "neutral"}>{SOURCES[model.source]}</Badge>
        {!effectiveOf(model).is_active && <Badge tone="warn">Inactive</Badge>}
      </span>
    ),
  },
  { title: "Providers", isSecondary: true, cell: ({ providers }) => providers.join(", ") },
  ...PRICE_COLUMNS,
  { title: "Visible to", cell: ({ organizations }) => visibilityText(organizations) },
  {
    title: "Aliases",
    isSecondary: true,
    cell: ({ aliases }) =>
      aliases.length === 0 ? <span class="quiet">None</span> : aliases.join(", "),
  },
];
