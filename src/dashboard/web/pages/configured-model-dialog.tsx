import { useState } from "preact/hooks";
import { MODEL_CATEGORIES } from "../../../lib/units.ts";
import { Area, Check, Choice, Field } from "../components/controls.tsx";
import { Dialog, Form } from "../components/dialog.tsx";
import { Rows } from "../components/rows.tsx";
import { titled } from "../format.ts";
import { type ConfiguredModel, MODELS_PATH } from "../models/configured-model.ts";
import { membersOf, PriceFields, type PriceTexts, textsOf } from "../models/price-settings.tsx";
import { useResource } from "../resource.ts";
import { type ConfigurationEntry, saveEntry } from "./configuration-entry.tsx";
import { numberIn } from "./key-dialog.tsx";
import { statedOrganizations, VisibilityFields } from "./model-visibility.tsx";
import { PROVIDERS_PATH } from "./provider-dialog.tsx";

/** The largest number of endpoints of a model. */
const MAX_ENDPOINTS = 32;

type Members = Readonly<Record<string, unknown>>;

interface EndpointRow {
  readonly provider: string;
  readonly model: string;
  readonly weight: string;
  /** The members that the form does not show, such as prices of the endpoint. */
  readonly others: Members;
}

const BLANK_ENDPOINT: EndpointRow = { provider: "", model: "", weight: "", others: {} };

interface Entries {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly category: string;
  readonly contextLength: string;
  readonly maxOutput: string;
  /** Capabilities, separated by commas. */
  readonly capabilities: string;
  readonly isActive: boolean;
  readonly endpoints: readonly EndpointRow[];
  readonly prices: PriceTexts;
  readonly organizations: readonly string[] | undefined;
}

interface ModelDialogProps {
  /** The stored model to edit. Undefined for a new one. */
  readonly edited: ConfiguredModel | undefined;
  onChanged(): void;
  onClose(): void;
}

/** The form for a stored model. Visibility has a dialog of its own, except for a new model. */
export function ModelDialog({ edited, onChanged, onClose }: ModelDialogProps) {
  const [entries, setEntries] = useState<Entries>(() => entriesOf(edited));
  const set = (changed: Partial<Entries>) =>
    setEntries((previous) => ({ ...previous, ...changed }));
  const save = async () => {
    const id = entries.id.trim();
    const members = statedMembers(entries);
    await saveEntry(MODELS_PATH, edited, {
      id,
      ...(edited === undefined ? members : changesOf(statedMembers(entriesOf(edited)), members)),
    });
    onClose();
    onChanged();
  };
  return (
    <Dialog title={edited === undefined ? "Add a model" : `Edit ${edited.id}`} onClose={onClose}>
      <Form submit={edited === undefined ? "Add" : "Save"} onCancel={onClose} onSubmit={save}>
        {edited === undefined && (
          <Field
            label="Id"
            param="id"
            value={entries.id}
            onInput={(id) => set({ id })}
            isRequired
            placeholder="acme/assistant"
            hint="The name that requests use, as author/name"
          />
        )}
        <Field
          label="Name"
          param="name"
          value={entries.name}
          onInput={(name) => set({ name })}
          placeholder="Last part of the id"
        />
        <Endpoints rows={entries.endpoints} onChange={(endpoints) => set({ endpoints })} />
        <div class="pair">
          <Field
            label="Context length"
            param="context_length"
            value={entries.contextLength}
            onInput={(contextLength) => set({ contextLength })}
            inputMode="numeric"
            hint="Tokens of prompt and answer"
          />
          <Field
            label="Max output tokens"
            param="max_output_tokens"
            value={entries.maxOutput}
            onInput={(maxOutput) => set({ maxOutput })}
            inputMode="numeric"
          />
        </div>
        <PriceFields texts={entries.prices} onChange={(prices) => set({ prices })} />
        <OtherSettings entries={entries} onChange={set} />
        {edited === undefined && (
          <VisibilityFields
            organizations={entries.organizations}
            onChange={(organizations) => set({ organizations })}
          />
        )}
      </Form>
    </Dialog>
  );
}

interface EndpointsProps {
  readonly rows: readonly EndpointRow[];
  onChange(rows: readonly EndpointRow[]): void;
}

function Endpoints({ rows, onChange }: EndpointsProps) {
  const { data } = useResource<{ data: ConfigurationEntry[] }>(PROVIDERS_PATH);
  const ids = new Set([
    ...(data?.data.map(({ id }) => id) ?? []),
    ...rows.flatMap(({ provider }) => provider || []),
  ]);
  return (
    <Rows
      legend="Endpoints"
      rows={rows}
      blank={BLANK_ENDPOINT}
      max={MAX_ENDPOINTS}
      add="Add endpoint"
      name="endpoint"
      hint="The providers that serve the model, in the order in which they are tried. Weights share out the first choice. A built-in model without endpoints here keeps its own."
      onChange={onChange}
      fields={({ provider, model, weight }, set, number) => (
        <>
          <Choice
            label={`Provider ${number}`}
            value={provider}
            options={[["", "None"], ...[...ids].map((id) => [id, id] as const)]}
            onChange={(chosen) => set({ provider: chosen })}
          />
          <Field
            label={`Its model ${number}`}
            value={model}
            onInput={(text) => set({ model: text })}
            placeholder="Name at the provider"
          />
          <div class="narrow">
            <Field
              label={`Weight ${number}`}
              value={weight}
              onInput={(text) => set({ weight: text })}
              inputMode="decimal"
              placeholder="None"
            />
          </div>
        </>
      )}
    />
  );
}

interface OtherSettingsProps {
  readonly entries: Entries;
  onChange(changed: Partial<Entries>): void;
}

function OtherSettings({ entries, onChange }: OtherSettingsProps) {
  return (
    <details class="fold">
      <summary>Other settings</summary>
      <div class="stack under">
        <Choice
          label="Category"
          param="category"
          value={entries.category}
          options={[
            ["", "Default"],
            ...MODEL_CATEGORIES.map((name) => [name, titled(name)] as const),
          ]}
          onChange={(category) => onChange({ category })}
        />
        <Field
          label="Capabilities"
          param="capabilities"
          value={entries.capabilities}
          onInput={(capabilities) => onChange({ capabilities })}
          placeholder="streaming, function_calling"
          hint="Separated by commas"
        />
        <Area
          label="Description"
          param="description"
          value={entries.description}
          onInput={(description) => onChange({ description })}
        />
        <Check
          label="Active"
          isChecked={entries.isActive}
          onChange={(isActive) => onChange({ isActive })}
        />
      </div>
    </details>
  );
}

function entriesOf(model: ConfiguredModel | undefined): Entries {
  const text = (name: string) => String(model?.[name] ?? "");
  const endpoints = (model?.endpoints ?? []) as readonly Members[];
  return {
    id: model?.id ?? "",
    name: text("name"),
    description: text("description"),
    category: text("category"),
    contextLength: text("context_length"),
    maxOutput: text("max_output_tokens"),
    capabilities: ((model?.capabilities ?? []) as readonly string[]).join(", "),
    isActive: model?.is_active !== false,
    endpoints:
      endpoints.length === 0
        ? [BLANK_ENDPOINT]
        : endpoints.map(({ provider, model: name, weight = "", ...others }) => ({
            provider: String(provider),
            model: String(name),
            weight: String(weight),
            others,
          })),
    prices: textsOf(model ?? {}),
    organizations: model?.organizations,
  };
}

/** Returns the members of the entry that the form states. Empty fields are absent. */
function statedMembers(entries: Entries): Members {
  const { name, description, category, isActive } = entries;
  const capabilities = entries.capabilities.split(",").flatMap((one) => one.trim() || []);
  const endpoints = entries.endpoints
    .filter(({ provider, model }) => provider !== "" || model !== "")
    .map(({ provider, model, weight, others }) => ({
      provider,
      model: model.trim(),
      ...(weight !== "" && { weight: numberIn(weight, "Weight") }),
      ...others,
    }));
  const all: Members = {
    name: name.trim() || null,
    description: description.trim() || null,
    category: category || null,
    context_length: numberIn(entries.contextLength, "Context length", "context_length"),
    max_output_tokens: numberIn(entries.maxOutput, "Max output tokens", "max_output_tokens"),
    capabilities: capabilities.length === 0 ? null : capabilities,
    is_active: isActive ? null : false,
    endpoints: endpoints.length === 0 ? null : endpoints,
    organizations: statedOrganizations(entries.organizations) ?? null,
    ...membersOf(entries.prices),
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== null));
}

/** Returns the members that differ. Null removes a member. */
function changesOf(before: Members, after: Members): Members {
  const names = new Set([...Object.keys(before), ...Object.keys(after)]);
  return Object.fromEntries(
    [...names].flatMap((name) => {
      if (JSON.stringify(before[name]) === JSON.stringify(after[name])) return [];
      return [[name, after[name] ?? null]];
    }),
  );
}
