import { useMemo } from "preact/hooks";
import { Button, Check, Choice, Field, Link } from "../components/controls.tsx";
import { toast } from "../components/dialog.tsx";
import { Badge, Empty, Notice, PageHead, Panel } from "../components/display.tsx";
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
import { OneModel } from "./model-detail.tsx";

const PAGE = 50;
const MAX_COMPARED = 4;

/** Names in a parameter of the address; ids of models have no commas. */
const listIn = (parameter: string) => query.value.get(parameter)?.split(",").filter(Boolean) ?? [];

/** The list of models, one of them, or some next to each other. */
export function ModelsPage() {
  const { models, isLoading, error } = useModels();
  const id = query.value.get("id");
  const chosen = listIn("compare");
  const choose = (one: string) => {
    const others = chosen.filter((other) => other !== one);
    if (others.length === chosen.length && chosen.length >= MAX_COMPARED) {
      toast(`At most ${MAX_COMPARED} models can be compared.`, true);
      return;
    }
    const next = others.length === chosen.length ? [...chosen, one] : others;
    changeQuery({ compare: next.join(",") });
  };
  if (id !== null) return <OneModel id={id} />;
  if (query.value.get("view") === "compare") {
    return (
      <ModelComparison
        models={chosen.flatMap((one) => models.find((model) => model.id === one) ?? [])}
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
            <Button onClick={() => changeQuery({ compare: undefined })}>Clear choice</Button>
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
      {error !== undefined && <Notice tone="bad">{error}</Notice>}
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
  const asked = query.value;
  const text = asked.get("q") ?? "";
  const use = asked.get("use") ?? "";
  const provider = asked.get("provider") ?? "";
  const has = asked.get("has") ?? "";
  const order = asked.get("sort") ?? "name";
  const features = has.split(",").filter(Boolean);
  const ordered = useMemo(() => sorted(models, order), [models, order]);
  const found = useMemo(
    () => matching(ordered, { text, use, provider, features }),
    [ordered, text, use, provider, has],
  );
  const providers = useMemo(() => providersOf(models), [models]);
  const first = Math.min(
    Number(asked.get("offset") ?? 0) || 0,
    PAGE * Math.floor(Math.max(0, found.length - 1) / PAGE),
  );
  const change = (changed: Readonly<Record<string, string | undefined>>) =>
    changeQuery({ offset: undefined, ...changed });
  const toggle = (id: string) => {
    const others = features.filter((feature) => feature !== id);
    change({ has: (others.length < features.length ? others : [...features, id]).join(",") });
  };
  const shown = found.slice(first, first + PAGE);
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
          options={[["", "Any"], ...providers.map((one) => [one, one] as const)]}
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
            : `${integer(found.length)} ${found.length === 1 ? "model" : "models"}`
        }
        aside={
          <span class="quiet" role="status">
            {isLoading ? "Loading…" : "Prices of tokens are per million"}
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
            <Empty title={models.length === 0 ? "There is no model." : "No model matches."}>
              <p>
                {models.length === 0
                  ? "Set the key of a provider, such as OPENAI_API_KEY, and start the gateway again."
                  : "Search for fewer words, or take filters away."}
              </p>
            </Empty>
          }
        />
        <Pager
          first={first}
          count={shown.length}
          total={found.length}
          hasMore={first + PAGE < found.length}
          onPrevious={first === 0 ? undefined : () => changeQuery({ offset: String(first - PAGE) })}
          onNext={() => changeQuery({ offset: String(first + PAGE) })}
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
        <span>
          <Link page="models" query={{ ...Object.fromEntries(query.value), id }} class="strong">
            {name}
          </Link>
          <span class="sub code">{id}</span>
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
              // What was refused stays unchecked.
              event.currentTarget.checked = chosen.includes(id);
            }}
          />
          <span aria-hidden="true">Compare</span>
        </label>
      ),
    },
  ];
}
