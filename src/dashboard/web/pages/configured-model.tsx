import { useState } from "preact/hooks";
import { Button, CopyText, Link } from "../components/controls.tsx";
import {
  Badge,
  Empty,
  Fact,
  LoadFailure,
  Notice,
  PageHead,
  Panel,
  Time,
} from "../components/display.tsx";
import { type Column, Table } from "../components/table.tsx";
import { integer, titled, usdExact } from "../format.ts";
import {
  type ConfiguredModel,
  type EffectiveModel,
  effectiveOf,
  MODELS_PATH,
  organizationsSeeing,
  type RestrictedProviders,
  visibilityText,
} from "../models/configured-model.ts";
import { isFree, PRICE_COLUMNS, type Pricing, pricesOf } from "../models/prices.tsx";
import { useResource } from "../resource.ts";
import { hrefOf, navigate, query } from "../router.ts";
import type { Alias } from "./aliases.tsx";
import { DeleteDialog, entryPath, SOURCES } from "./configuration-entry.tsx";
import { HistoryDialog } from "./configuration-history.tsx";
import { ModelDialog } from "./configured-model-dialog.tsx";
import { PriceEntries } from "./model-price-entries.tsx";
import { VisibilityDialog } from "./model-visibility.tsx";

type Action = "edit" | "visibility" | "history" | "delete";

const ACTIONS: readonly (readonly [Action, string])[] = [
  ["edit", "Edit"],
  ["visibility", "Visibility"],
  ["history", "History"],
  ["delete", "Delete"],
];

/** Why a model cannot be changed here, by its source, and the other way. */
const READ_ONLY: Readonly<Record<Exclude<ConfiguredModel["source"], "stored">, string>> = {
  file: "This model is an entry of the configuration file, so it is read-only here. Change it in the file, or add a model with the same id, which replaces it.",
  environment: "This model comes from the environment, so it is read-only here.",
  built_in:
    "This model comes with the gateway, so it is read-only here. Add a model with the same id to change its name, limits or prices.",
  provider_list:
    "This model is in its provider's list, so it is read-only here. Add a model with the same id to change its name, limits or prices.",
};

interface ConfiguredModelProps {
  readonly id: string;
  /** The aliases of the gateway. Undefined while they are loading. */
  readonly aliases: readonly Alias[] | undefined;
  readonly restricted: RestrictedProviders;
  onChanged(): void;
}

/** One model for operators: its entry, its providers and its prices. */
export function ConfiguredModelPage(props: ConfiguredModelProps) {
  const { id, aliases = [], restricted, onChanged } = props;
  const [action, setAction] = useState<Action>();
  const {
    data: model,
    error,
    reload,
  } = useResource<ConfiguredModel>(entryPath(MODELS_PATH, { id }));
  const list = { ...Object.fromEntries(query.value), id: undefined };
  const changed = () => {
    reload();
    onChanged();
  };
  return (
    <>
      <p class="back">
        <Link page="configured-models" query={list}>
          ← Models
        </Link>
      </p>
      <PageHead title={model === undefined ? "Model" : effectiveOf(model).name}>
        {model?.source === "stored" &&
          ACTIONS.map(([name, text]) => (
            <Button needs="operator" key={name} onClick={() => setAction(name)}>
              {text}
            </Button>
          ))}
      </PageHead>
      {error !== undefined && <LoadFailure message={error} />}
      {model !== undefined && (
        <>
          {model.source !== "stored" && <Notice>{READ_ONLY[model.source]}</Notice>}
          <Details {...{ model, aliases, restricted }} />
          <PriceEntries model={model} onChanged={changed} />
          <ActionDialog
            {...{ action, model }}
            onChanged={changed}
            onDeleted={() => {
              navigate(hrefOf("configured-models", list));
              onChanged();
            }}
            onClose={() => setAction(undefined)}
          />
        </>
      )}
    </>
  );
}

interface DetailsProps {
  readonly model: ConfiguredModel;
  readonly aliases: readonly Alias[];
  readonly restricted: RestrictedProviders;
}

function Details({ model, aliases, restricted }: DetailsProps) {
  const effective = effectiveOf(model);
  const naming = aliases.filter((alias) => alias.models.some(({ id }) => id === model.id));
  const tokens = (count: number) => (count === 0 ? null : `${integer(count)} tokens`);
  return (
    <>
      <div class="columns">
        <Panel title="Model" aside={!effective.is_active && <Badge tone="warn">Inactive</Badge>}>
          <CopyText label="model id" text={model.id} />
          {effective.description !== "" && <p class="lead">{effective.description}</p>}
          <dl class="facts">
            <Fact name="Source" value={SOURCES[model.source]} />
            <Fact
              name="Changed"
              value={
                typeof model.updated_at === "string" && (
                  <>
                    <Time iso={model.updated_at} />, version {model.version}
                  </>
                )
              }
            />
            <Fact name="Category" value={titled(effective.category)} />
            <Fact name="Context" value={tokens(effective.context_length)} />
            <Fact name="Max output" value={tokens(effective.max_output_tokens)} />
            <Fact
              name="Visible to"
              value={<Visibility organizations={organizationsSeeing(model, restricted)} />}
            />
            <Fact
              name="Aliases"
              value={naming.length === 0 ? "None" : naming.map(({ id }) => id).join(", ")}
            />
          </dl>
        </Panel>
        <Panel
          title="Prices in force"
          aside={<span class="quiet">Excluding the platform fee</span>}
        >
          {isFree(effective) ? <p class="quiet">Free</p> : <Prices pricing={effective.pricing} />}
        </Panel>
      </div>
      <Panel title="Providers" aside={<span class="quiet">In routing order</span>} isFlush>
        <Table
          label="Providers of the model"
          columns={COLUMNS}
          rows={effective.endpoints}
          keyOf={({ provider, model: name }) => `${provider} ${name}`}
          empty={<Empty title="No providers" />}
        />
      </Panel>
    </>
  );
}

interface VisibilityProps {
  readonly organizations: readonly string[] | undefined;
}

/** The number of organizations that see a model, and their ids. */
function Visibility({ organizations }: VisibilityProps) {
  return (
    <>
      {visibilityText(organizations)}
      {organizations?.map((id) => (
        <span key={id} class="sub code">
          {id}
        </span>
      ))}
    </>
  );
}

function Prices({ pricing }: { readonly pricing: Pricing }) {
  return (
    <dl class="facts">
      {pricesOf(pricing).map(({ kind, label, amount, unit }) => (
        <Fact key={kind} name={label} value={`${usdExact(amount)} / ${unit}`} />
      ))}
    </dl>
  );
}

const COLUMNS: readonly Column<EffectiveModel["endpoints"][number]>[] = [
  {
    title: "Provider",
    cell: ({ provider, model }) => (
      <span>
        <span class="strong">{provider}</span>
        <span class="sub code">{model}</span>
      </span>
    ),
  },
  ...PRICE_COLUMNS,
];

interface ActionDialogProps {
  readonly action: Action | undefined;
  readonly model: ConfiguredModel;
  onChanged(): void;
  onDeleted(): void;
  onClose(): void;
}

function ActionDialog({ action, model, onChanged, onDeleted, onClose }: ActionDialogProps) {
  if (action === undefined) return null;
  if (action === "edit") return <ModelDialog edited={model} {...{ onChanged, onClose }} />;
  if (action === "visibility") return <VisibilityDialog {...{ model, onChanged, onClose }} />;
  if (action === "history") {
    return (
      <HistoryDialog path={MODELS_PATH} kind="model" entry={model} {...{ onChanged, onClose }} />
    );
  }
  return (
    <DeleteDialog path={MODELS_PATH} kind="model" entry={model} {...{ onDeleted, onClose }}>
      The built-in model, or that of the configuration file or of a provider's list, is then in
      force again. If there is none, requests for <b>{model.id}</b> are 404. Running requests end as
      they began.
    </DeleteDialog>
  );
}
