import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import {
  SCOPES,
  SETTING_ROWS,
  type SettingField,
  type SettingKinds,
  type WireSettings,
} from "../../../lib/api-key-record.ts";
import { grantedScopesOf } from "../../../lib/roles.ts";
import { ApiError, call, session } from "../api.ts";
import { Button, Check, Choice, CopyText, Field } from "../components/controls.tsx";
import { Dialog, Form, toast } from "../components/dialog.tsx";
import { Notice } from "../components/display.tsx";
import { ModelsField, modelsIn } from "../models/models-field.tsx";
import { isSelfOnly, memberRole } from "../rights.ts";
import { KeySnippet } from "./key-snippet.tsx";
import type { ListedKey } from "./keys.tsx";
import { useKeyTeams, useMembers } from "./people/names.ts";

interface KeyDialogProps {
  /** The key to edit. Undefined for a new key. */
  readonly edited: ListedKey | undefined;
  onChanged(): void;
  onClose(): void;
}

/** Settings that the form does not have. Keys are switched on and off in the list. */
const NOT_IN_FORM = ["is_active"] as const;
type FormField = Exclude<SettingField, (typeof NOT_IN_FORM)[number]>;
const FORM_ROWS = SETTING_ROWS.flatMap((row) =>
  NOT_IN_FORM.some((field) => field === row.field)
    ? []
    : [{ ...row, field: row.field as FormField }],
);
type TextField = Exclude<FormField, "scopes" | "budget_includes_byok">;
type Entries = Readonly<Record<TextField, string>> &
  Pick<WireSettings, "scopes" | "budget_includes_byok">;

interface Control {
  readonly label: string;
  readonly hint?: string;
  readonly placeholder?: string;
  readonly type?: "date";
  readonly inputMode?: "numeric" | "decimal";
  readonly isRequired?: true;
}

const RATE = { inputMode: "numeric", placeholder: "No limit" } as const;
const BUDGET = { inputMode: "decimal", placeholder: "No budget" } as const;

const CONTROLS: Readonly<Record<FormField, Control>> = {
  name: { label: "Name", hint: "The program or person that uses the key", isRequired: true },
  rate_limit_rpm: { label: "Requests per minute", ...RATE },
  rate_limit_tpm: { label: "Tokens per minute", ...RATE },
  daily_budget_usd: { label: "Daily budget", hint: "USD per UTC day", ...BUDGET },
  monthly_budget_usd: { label: "Monthly budget", hint: "USD per UTC month", ...BUDGET },
  budget_includes_byok: { label: "Include calls with your own provider keys in budgets" },
  allowed_models: { label: "Allowed models" },
  expires_at: { label: "Expires on", type: "date", hint: "At 00:00 UTC on that day" },
  team_id: { label: "Team" },
  owner_id: { label: "Owner" },
  scopes: { label: "Scopes" },
};

/** Creates a key and shows its secret once, or edits a key. */
export function KeyDialog({ edited, onChanged, onClose }: KeyDialogProps) {
  const [entries, setEntries] = useState<Entries>(() => entriesOf(edited));
  const [secret, setSecret] = useState<string>();
  const set = (changed: Partial<Entries>) =>
    setEntries((previous) => ({ ...previous, ...changed }));
  const save = async () => {
    const body = bodyOf(entries, edited);
    if (edited === undefined) {
      const created = await call<{ key: string }>("POST", "v1/keys", { body });
      setSecret(created.key);
    } else {
      if (Object.keys(body).length > 0) await call("PATCH", `v1/keys/${edited.id}`, { body });
      toast(`Updated ${entries.name}.`);
      onClose();
    }
    onChanged();
  };
  if (secret !== undefined) {
    return (
      <Dialog title="Key created" onClose={onClose}>
        <SecretOnce secret={secret} onDone={onClose}>
          <KeySnippet secret={secret} allowedModels={modelsIn(entries.allowed_models)} />
        </SecretOnce>
      </Dialog>
    );
  }
  return (
    <Dialog
      title={edited === undefined ? "Create a secret key" : `Edit ${edited.name}`}
      onClose={onClose}
    >
      <Form submit={edited === undefined ? "Create" : "Save"} onCancel={onClose} onSubmit={save}>
        <Fields of={["name"]} {...{ entries, set }} />
        <Belonging {...{ entries, set }} />
        <div class="pair">
          <Fields
            of={["rate_limit_rpm", "rate_limit_tpm", "daily_budget_usd", "monthly_budget_usd"]}
            {...{ entries, set }}
          />
        </div>
        {(entries.daily_budget_usd !== "" || entries.monthly_budget_usd !== "") && (
          <Check
            label={CONTROLS.budget_includes_byok.label}
            isChecked={entries.budget_includes_byok}
            onChange={(budget_includes_byok) => set({ budget_includes_byok })}
          />
        )}
        <ModelsField
          param="allowed_models"
          value={entries.allowed_models}
          onInput={(allowed_models) => set({ allowed_models })}
        />
        <Fields of={["expires_at"]} {...{ entries, set }} />
        <Scopes chosen={entries.scopes} onChange={(scopes) => set({ scopes })} />
      </Form>
    </Dialog>
  );
}

interface FieldsProps {
  readonly of: readonly TextField[];
  readonly entries: Entries;
  set(changed: Partial<Entries>): void;
}

function Fields({ of: fields, entries, set }: FieldsProps) {
  return fields.map((field) => (
    <Field
      key={field}
      param={field}
      {...CONTROLS[field]}
      value={entries[field]}
      onInput={(text) => set({ [field]: text })}
    />
  ));
}

/** The team and the owner. A self-only member owns its keys, and chooses among its teams. */
function Belonging({ entries, set }: Omit<FieldsProps, "of">) {
  const isSelf = isSelfOnly();
  const teams = useKeyTeams();
  const members = useMembers().data?.data ?? [];
  const optionsOf = (named: readonly { id: string; name: string }[], none: string, id: string) => [
    ...(isSelf ? [] : [["", none] as const]),
    ...named.map((one) => [one.id, one.name] as const),
    ...(id === "" || named.some((one) => one.id === id) ? [] : [[id, id] as const]),
  ];
  const { team_id: teamId, owner_id: ownerId } = entries;
  const teamOptions = optionsOf(teams, "No team", teamId);
  const ownerOptions = optionsOf(members, "No owner", ownerId);
  return (
    <div class="pair">
      {teamOptions.length > 1 && (
        <Choice
          label={CONTROLS.team_id.label}
          param="team_id"
          value={teamId}
          options={teamOptions}
          onChange={(id) => set({ team_id: id })}
        />
      )}
      {!isSelf && ownerOptions.length > 1 && (
        <Choice
          label={CONTROLS.owner_id.label}
          param="owner_id"
          value={ownerId}
          options={ownerOptions}
          onChange={(id) => set({ owner_id: id })}
        />
      )}
    </div>
  );
}

interface ScopesProps {
  readonly chosen: readonly string[];
  onChange(scopes: readonly string[]): void;
}

/** Returns the scopes that the session can give to a key. */
function grantableScopes(): readonly string[] {
  const role = memberRole();
  return role === undefined ? SCOPES : SCOPES.filter((one) => grantedScopesOf(role).includes(one));
}

/** The scopes of the key. Folded, because most keys have all scopes. */
function Scopes({ chosen, onChange }: ScopesProps) {
  const grantable = grantableScopes();
  const offered = SCOPES.filter((one) => grantable.includes(one) || chosen.includes(one));
  const isAll = chosen.length === offered.length;
  return (
    <details class="fold" open={!isAll}>
      <summary>
        Scopes <span class="quiet">{isAll ? "All" : `${chosen.length} of ${offered.length}`}</span>
      </summary>
      <fieldset class="checks">
        <legend class="unseen">Scopes</legend>
        <Check
          label="All scopes"
          isChecked={isAll}
          onChange={(isOn) => onChange(isOn ? offered : [])}
        />
        {offered.map((scope) => (
          <Check
            key={scope}
            label={scope}
            isChecked={chosen.includes(scope)}
            onChange={(isOn) =>
              onChange(offered.filter((item) => (item === scope ? isOn : chosen.includes(item))))
            }
          />
        ))}
      </fieldset>
    </details>
  );
}

interface SecretOnceProps {
  readonly secret: string;
  /** True while an operation with the key is running. */
  readonly isBusy?: boolean;
  readonly children?: ComponentChildren;
  onDone(): void;
}

/** The secret of a new key, with a button to copy it. */
export function SecretOnce({ secret, isBusy = false, children, onDone }: SecretOnceProps) {
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onDone();
      }}
    >
      <Notice tone="warn">
        Copy the key now. It is shown only once: the gateway stores only a hash of it.
      </Notice>
      <CopyText text={secret} label="secret key" />
      {children}
      <footer>
        <Button type="submit" variant="primary" isBusy={isBusy}>
          Done
        </Button>
      </footer>
    </form>
  );
}

/** Returns the team of a new key: the first one of a self-only member, and otherwise none. */
function firstTeam(): string {
  return isSelfOnly() ? (session.value?.person?.teams[0]?.id ?? "") : "";
}

function entriesOf(key: ListedKey | undefined): Entries {
  const entries = FORM_ROWS.map(({ field, kind }) => {
    const value = key?.[field];
    if (kind === "flag") return [field, value ?? false];
    if (kind === "scopes") return [field, value ?? grantableScopes()];
    if (field === "team_id" && key === undefined) return [field, firstTeam()];
    const text = Array.isArray(value) ? value.join(", ") : String(value ?? "");
    return [field, kind === "time" ? text.slice(0, 10) : text];
  });
  return Object.fromEntries(entries);
}

/**
 * Returns the request body of a form. A change omits what was not changed, so that it does not undo what another person
 * has changed since. A new key omits an empty expiry and all scopes.
 */
function bodyOf(entries: Entries, edited: ListedKey | undefined): Partial<WireSettings> {
  const before = entriesOf(edited);
  if (entries.scopes.length === 0) {
    throw new ApiError(400, "invalid_body", "Choose at least one scope.", "scopes");
  }
  const stated = FORM_ROWS.flatMap(({ field, kind }) => {
    const entry = entries[field];
    const mayBeOmitted = edited !== undefined || kind === "time" || kind === "scopes";
    // A self-only member owns its keys.
    if (field === "owner_id" && entry === before.owner_id) return [];
    if (mayBeOmitted && String(entry) === String(before[field])) return [];
    return [[field, typeof entry === "string" ? valueIn(field, kind, entry) : entry]];
  });
  return Object.fromEntries(stated);
}

/** Returns the value of a field in the API. Throws if the text is invalid. */
function valueIn(field: FormField, kind: keyof SettingKinds, text: string) {
  if (kind === "rate" || kind === "amount") return numberIn(text, CONTROLS[field].label, field);
  return kind === "models" ? modelsIn(text) : text || null;
}

/**
 * Returns the number in a field, or null if the field is empty. Throws if the text is not a number.
 *
 * @param label the label of the field, for the error
 * @param param the field of the API's request body
 */
export function numberIn(text: string, label: string, param?: string): number | null {
  const trimmed = text.trim().replace(/^\$/, "");
  if (trimmed === "") return null;
  const value = Number(trimmed);
  if (Number.isFinite(value)) return value;
  throw new ApiError(400, "invalid_body", `${label} must be a number.`, param ?? null);
}
