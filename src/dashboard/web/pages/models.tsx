import { useMemo } from "preact/hooks";
import { Button, Check, Choice, Field, Link } from "../components/controls.tsx";
import { toast } from "../components/dialog.tsx";
import { Badge, Empty, LoadFailure, PageHead, Panel } from "../components/display.tsx";
import { Mark } from "../components/icon.tsx";
import { type Column, Pager, Table } from "../components/table.tsx";
import { integer, short } from "../format.ts";
import {
  FEATURES,
  type ListedModel,
  matching,
  ORDERS,
  providersOf,
  sorted,
  USES,
  useModels,
  useTitle,
} from "../models/catalogue.ts";
import { PRICE_COLUMNS } from "../models/prices.tsx";
import { changeQuery, query } from "../router.ts";
import { ModelComparison } from "./model-comparison.tsx";
import { ModelDetailPage } from "./model-detail.tsx";

const PAGE_SIZE = 50;
const MAX_COMPARED = 4;

/** Returns the ids in a query parameter, separated by commas. Model ids contain no commas. */
const listIn = (parameter: string) => query.value.get(parameter)?.split(",").filter(Boolean) ?? [];

/** The list of models, one model, or a comparison. */
export function ModelsPage() {
  const { models, isLoading, error } = useModels();
  const id = query.value.get("id");
  const chosen = listIn("compare");
  const choose = (toggledId: string) => {
    const others = chosen.filter((chosenId) => chosenId !== toggledId);
    if (others.length === chosen.length && chosen.length >= MAX_COMPARED) {
      toast(`At most ${MAX_COMPARED} models can be compared.`, true);
      return;
    }
    const next = others.length === chosen.length ? [...chosen, toggledId] : others;
    changeQuery({ compare: next.join(",") });
  };
  if (id !== null) return <ModelDetailPage id={id} />;
  if (query.value.get("view") === "compare") {
    return (
      <ModelComparison
        models={chosen.flatMap((chosenId) => models.find((model) => model.id === chosenId) ?? [])}
        isLoading={isLoading}
        onRemove={choose}
      />
    );
  }
  return (
    <>
      <PageHead title="Models">
        {chosen.length > 0 && (
          <>
            <Button onClick={() => changeQuery({ compare: undefined })}>Clear selection</Button>
            <Link
              page="models"
              query={{ ...Object.fromEntries(query.value), view: "compare" }}
              class="button primary"
            >
              Compare {chosen.length} {chosen.length === 1 ? "model" : "models"}
            </Link>
          </>
        )}
      </PageHead>
      {error !== undefined && <LoadFailure message={error} />}
      <ModelList models={models} isLoading={isLoading} chosen={chosen} onChoose={choose} />
    </>
  );
}

interface ModelListProps {
  readonly models: readonly ListedModel[];
  readonly isLoading: boolean;
  readonly chosen: readonly string[];
  onChoose(id: string): void;
}

function ModelList({ models, isLoading, chosen, onChoose }: ModelListProps) {
  const urlQuery = query.value;
  const text = urlQuery.get("q") ?? "";
  const use = urlQuery.get("use") ?? "";
  const provider = urlQuery.get("provider") ?? "";
  const requiredFeatures = urlQuery.get("has") ?? "";
  const order = urlQuery.get("sort") ?? "name";
  const features = requiredFeatures.split(",").filter(Boolean);
  const ordered = useMemo(() => sorted(models, order), [models, order]);
  const matches = useMemo(
    () => matching(ordered, { text, use, provider, features }),
    [ordered, text, use, provider, requiredFeatures],
  );
  const providers = useMemo(() => providersOf(models), [models]);
  const first = Math.min(
    Number(urlQuery.get("offset") ?? 0) || 0,
    PAGE_SIZE * Math.floor(Math.max(0, matches.length - 1) / PAGE_SIZE),
  );
  const change = (changed: Readonly<Record<string, string | undefined>>) =>
    changeQuery({ offset: undefined, ...changed });
  const toggle = (id: string) => {
    const others = features.filter((feature) => feature !== id);
    change({ has: (others.length < features.length ? others : [...features, id]).join(",") });
  };
  const shown = matches.slice(first, first + PAGE_SIZE);
  const isFirstLoad = isLoading && models.length === 0;
  return (
    <>
      <div class="filters models">
        <Field
          label="Search"
          type="search"
          value={text}
          onInput={(value) => change({ q: value })}
          placeholder="Name or provider"
        />
        <Choice
          label="Use"
          value={use}
          options={[["", "Any"], ...USES]}
          onChange={(value) => change({ use: value })}
        />
        <Choice
          label="Provider"
          value={provider}
          options={[["", "Any"], ...providers.map((name) => [name, name] as const)]}
          onChange={(value) => change({ provider: value })}
        />
        <Choice
          label="Sort by"
          value={order}
          options={ORDERS}
          onChange={(value) => change({ sort: value })}
        />
      </div>
      <fieldset class="checks inline">
        <legend class="unseen">Only models with</legend>
        {FEATURES.map(({ id, title }) => (
          <Check
            key={id}
            label={title}
            isChecked={features.includes(id)}
            onChange={() => toggle(id)}
          />
        ))}
      </fieldset>
      <Panel
        title={
          isFirstLoad
            ? "Models"
            : `${integer(matches.length)} ${matches.length === 1 ? "model" : "models"}`
        }
        aside={
          <span class="quiet" role="status">
            {isLoading ? "Loading…" : "Token prices per million tokens"}
          </span>
        }
        isFlush
      >
        <Table
          label="Models"
          columns={columns(chosen, onChoose)}
          rows={isFirstLoad ? undefined : shown}
          keyOf={({ id }) => id}
          empty={
            <Empty title={models.length === 0 ? "No models" : "No matching models"}>
              <p>
                {models.length === 0
                  ? "Set the key of a provider, such as OPENAI_API_KEY, and restart the gateway."
                  : "Use fewer search terms or clear filters."}
              </p>
            </Empty>
          }
        />
        <Pager
          first={first}
          count={shown.length}
          total={matches.length}
          hasMore={first + PAGE_SIZE < matches.length}
          onPrevious={
            first === 0 ? undefined : () => changeQuery({ offset: String(first - PAGE_SIZE) })
          }
          onNext={() => changeQuery({ offset: String(first + PAGE_SIZE) })}
        />
      </Panel>
    </>
  );
}

function columns(chosen: readonly string[], onChoose: (id: string) => void): Column<ListedModel>[] {
  return [
    {
      title: "Model",
      cell: ({ id, name }) => (
        <span class="with-mark">
          <Mark of={id} />
          <span>
            <Link page="models" query={{ ...Object.fromEntries(query.value), id }} class="strong">
              {name}
            </Link>
            <span class="sub code">{id}</span>
          </span>
        </span>
      ),
    },
    { title: "Use", isCorner: true, cell: (model) => <Badge>{useTitle(model)}</Badge> },
    { title: "Provider", isSecondary: true, cell: ({ provider }) => provider },
    {
      title: "Context",
      isNumber: true,
      isSecondary: true,
      cell: ({ context_length: tokens }) => <span title={integer(tokens)}>{short(tokens)}</span>,
    },
    ...PRICE_COLUMNS,
    {
      title: "Compare",
      isAction: true,
      cell: ({ id, name }) => (
        <label class="check">
          <input
            type="checkbox"
            aria-label={`Compare ${name}`}
            checked={chosen.includes(id)}
            onChange={(event) => {
              onChoose(id);
              // Restores the checkbox if the selection was rejected.
              event.currentTarget.checked = chosen.includes(id);
            }}
          />
          <span aria-hidden="true">Compare</span>
        </label>
      ),
    },
  ];
}
