import { useState } from "preact/hooks";
import { call } from "../../api.ts";
import { Choice, Field } from "../../components/controls.tsx";
import { Dialog, Form, toast } from "../../components/dialog.tsx";
import { titled } from "../../format.ts";
import { ModelsField, modelsIn } from "../../models/models-field.tsx";
import { useResource } from "../../resource.ts";
import { numberIn } from "../key-dialog.tsx";
import { Budgets } from "./member-dialog.tsx";
import type { Team } from "./names.ts";

interface TeamDialogProps {
  /** The team to edit. Undefined for a new one. */
  readonly edited: Team | undefined;
  onChanged(): void;
  onClose(): void;
}

export function TeamDialog({ edited, onChanged, onClose }: TeamDialogProps) {
  const [entries, setEntries] = useState<Entries>(() => entriesOf(edited));
  const set = (changed: Partial<Entries>) =>
    setEntries((previous) => ({ ...previous, ...changed }));
  const field = (
    name: keyof Entries,
    label: string,
    more: Partial<Parameters<typeof Field>[0]>,
  ) => (
    <Field
      label={label}
      param={paramOf(name)}
      value={entries[name]}
      onInput={(text) => set({ [name]: text })}
      {...more}
    />
  );
  const save = async () => {
    const body = changedIn(entries, edited);
    if (edited === undefined) await call("POST", "v1/teams", { body });
    else if (Object.keys(body).length > 0) await call("PATCH", `v1/teams/${edited.id}`, { body });
    toast(edited === undefined ? `Created ${entries.name}.` : `Updated ${entries.name}.`);
    onClose();
    onChanged();
  };
  return (
    <Dialog
      title={edited === undefined ? "Create a team" : `Edit ${edited.name}`}
      onClose={onClose}
    >
      <Form submit={edited === undefined ? "Create" : "Save"} onCancel={onClose} onSubmit={save}>
        {field("name", "Name", { isRequired: true })}
        <Budgets {...entries} onChange={set} />
        <div class="pair">
          {field("rpm", "Requests per minute", NUMBER)}
          {field("tpm", "Tokens per minute", NUMBER)}
        </div>
        <ModelsField
          param="allowed_models"
          value={entries.models}
          onInput={(models) => set({ models })}
        />
        <div class="pair">
          <DefinitionChoice
            kind="guardrail"
            value={entries.guardrail}
            onChange={(guardrail) => set({ guardrail })}
          />
          <DefinitionChoice
            kind="preset"
            value={entries.preset}
            onChange={(preset) => set({ preset })}
          />
        </div>
        <fieldset class="rows">
          <legend>Policy for keys of developers</legend>
          <div class="triple">
            {field("maxKeys", "Keys per member", NUMBER)}
            {field("maxDaily", "Max daily budget", {
              ...NUMBER,
              inputMode: "decimal",
              hint: "USD",
            })}
            {field("maxDays", "Max lifetime", { ...NUMBER, hint: "Days" })}
          </div>
        </fieldset>
      </Form>
    </Dialog>
  );
}

const NUMBER = { inputMode: "numeric", placeholder: "No limit" } as const;

interface DefinitionChoiceProps {
  readonly kind: "guardrail" | "preset";
  readonly value: string;
  onChange(value: string): void;
}

/** The guardrail or preset that applies to all requests of the team. */
function DefinitionChoice({ kind, value, onChange }: DefinitionChoiceProps) {
  const { data } = useResource<{ data: { name: string }[] }>(`v1/${kind}s`);
  const names = new Set(data?.data.map(({ name }) => name));
  // The team may state it by id.
  if (value !== "") names.add(value);
  return (
    <Choice
      label={titled(kind)}
      hint="Of all requests"
      value={value}
      options={[["", "None"], ...[...names].map((name) => [name, name] as const)]}
      onChange={onChange}
    />
  );
}

type Entries = Readonly<
  Record<
    | "name"
    | "daily"
    | "monthly"
    | "rpm"
    | "tpm"
    | "models"
    | "guardrail"
    | "preset"
    | "maxKeys"
    | "maxDaily"
    | "maxDays",
    string
  >
>;

function entriesOf(team: Team | undefined): Entries {
  const text = (value: number | string | null | undefined) => String(value ?? "");
  const policy = team?.key_policy;
  return {
    name: text(team?.name),
    daily: text(team?.daily_budget_usd),
    monthly: text(team?.monthly_budget_usd),
    rpm: text(team?.rate_limit_rpm),
    tpm: text(team?.rate_limit_tpm),
    models: team?.allowed_models?.join(", ") ?? "",
    guardrail: text(team?.guardrail),
    preset: text(team?.preset),
    maxKeys: text(policy?.max_keys_per_member),
    maxDaily: text(policy?.max_daily_budget_usd),
    maxDays: text(policy?.max_lifetime_days),
  };
}

/** The fields of the API by their entries, with the label of a number. */
const FIELDS: readonly (readonly [keyof Entries, string, numberLabel?: string])[] = [
  ["name", "name"],
  ["daily", "daily_budget_usd", "Daily budget"],
  ["monthly", "monthly_budget_usd", "Monthly budget"],
  ["rpm", "rate_limit_rpm", "Requests per minute"],
  ["tpm", "rate_limit_tpm", "Tokens per minute"],
  ["models", "allowed_models"],
  ["guardrail", "guardrail"],
  ["preset", "preset"],
];
const POLICY_FIELDS: typeof FIELDS = [
  ["maxKeys", "max_keys_per_member", "Keys per member"],
  ["maxDaily", "max_daily_budget_usd", "Max daily budget"],
  ["maxDays", "max_lifetime_days", "Max lifetime"],
];

/** Returns the field of the request body that an entry states. */
function paramOf(name: keyof Entries): string {
  const [, field] = FIELDS.find(([entry]) => entry === name) ?? [];
  const [, policy] = POLICY_FIELDS.find(([entry]) => entry === name) ?? [];
  return field ?? `key_policy.${policy}`;
}

/** Returns the changed fields. Throws if a number is invalid. */
function changedIn(entries: Entries, edited: Team | undefined): Record<string, unknown> {
  const before = entriesOf(edited);
  const changed = (fields: typeof FIELDS) =>
    Object.fromEntries(
      fields.flatMap(([entry, field, label]) =>
        entries[entry] === before[entry] ? [] : [[field, valueIn(entry, entries[entry], label)]],
      ),
    );
  const policy = changed(POLICY_FIELDS);
  return { ...changed(FIELDS), ...(Object.keys(policy).length > 0 && { key_policy: policy }) };
}

function valueIn(entry: keyof Entries, text: string, numberLabel: string | undefined): unknown {
  if (numberLabel !== undefined) return numberIn(text, numberLabel, paramOf(entry));
  return entry === "models" ? modelsIn(text) : text || null;
}
