import { useState } from "preact/hooks";
import { SCOPES } from "../../../lib/api-key-record.ts";
import { ApiError, call } from "../api.ts";
import { Button, Check, CopyText, Field } from "../components/controls.tsx";
import { Dialog, Form, toast } from "../components/dialog.tsx";
import { Notice } from "../components/display.tsx";
import type { ListedKey } from "./keys.tsx";

interface KeyDialogProps {
  /** The key to edit. Undefined for a new key. */
  readonly edited: ListedKey | undefined;
  onChanged(): void;
  onClose(): void;
}

interface Entries {
  readonly name: string;
  readonly rpm: string;
  readonly tpm: string;
  readonly daily: string;
  readonly monthly: string;
  readonly includesByok: boolean;
  readonly models: string;
  readonly expires: string;
  readonly scopes: readonly string[];
}

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
      await call("PATCH", `v1/keys/${edited.id}`, { body });
      toast(`Updated ${entries.name}.`);
      onClose();
    }
    onChanged();
  };
  if (secret !== undefined) {
    return (
      <Dialog title="Key created" onClose={onClose}>
        <SecretOnce secret={secret} onDone={onClose} />
      </Dialog>
    );
  }
  return (
    <Dialog
      title={edited === undefined ? "Create a secret key" : `Edit ${edited.name}`}
      onClose={onClose}
    >
      <Form submit={edited === undefined ? "Create" : "Save"} onCancel={onClose} onSubmit={save}>
        <Field
          label="Name"
          value={entries.name}
          onInput={(name) => set({ name })}
          isRequired
          hint="The program or person that uses the key"
        />
        <LimitFields entries={entries} onChange={set} />
        <Field
          label="Allowed models"
          value={entries.models}
          onInput={(models) => set({ models })}
          placeholder="All models"
          hint="Model ids separated by commas"
        />
        <Field
          label="Expires on"
          type="date"
          value={entries.expires}
          onInput={(expires) => set({ expires })}
          hint="At 00:00 UTC on that day"
        />
        <Scopes chosen={entries.scopes} onChange={(scopes) => set({ scopes })} />
      </Form>
    </Dialog>
  );
}

interface EntryProps {
  readonly entries: Entries;
  onChange(changed: Partial<Entries>): void;
}

function LimitFields({ entries, onChange }: EntryProps) {
  return (
    <>
      <div class="pair">
        <Field
          label="Requests per minute"
          value={entries.rpm}
          onInput={(rpm) => onChange({ rpm })}
          inputMode="numeric"
          placeholder="No limit"
        />
        <Field
          label="Tokens per minute"
          value={entries.tpm}
          onInput={(tpm) => onChange({ tpm })}
          inputMode="numeric"
          placeholder="No limit"
        />
        <Field
          label="Daily budget"
          value={entries.daily}
          onInput={(daily) => onChange({ daily })}
          inputMode="decimal"
          placeholder="No budget"
          hint="USD per UTC day"
        />
        <Field
          label="Monthly budget"
          value={entries.monthly}
          onInput={(monthly) => onChange({ monthly })}
          inputMode="decimal"
          placeholder="No budget"
          hint="USD per UTC month"
        />
      </div>
      {(entries.daily !== "" || entries.monthly !== "") && (
        <Check
          label="Include calls with your own provider keys in budgets"
          isChecked={entries.includesByok}
          onChange={(includesByok) => onChange({ includesByok })}
        />
      )}
    </>
  );
}

interface ScopesProps {
  readonly chosen: readonly string[];
  onChange(scopes: readonly string[]): void;
}

const ALL_SCOPES: readonly string[] = SCOPES;

/** The scopes of the key. Folded, because most keys have all scopes. */
function Scopes({ chosen, onChange }: ScopesProps) {
  const isAll = chosen.length === ALL_SCOPES.length;
  return (
    <details class="fold" open={!isAll}>
      <summary>
        Scopes{" "}
        <span class="quiet">{isAll ? "All" : `${chosen.length} of ${ALL_SCOPES.length}`}</span>
      </summary>
      <fieldset class="checks">
        <legend class="unseen">Scopes</legend>
        <Check
          label="All scopes"
          isChecked={isAll}
          onChange={(isOn) => onChange(isOn ? ALL_SCOPES : [])}
        />
        {ALL_SCOPES.map((scope) => (
          <Check
            key={scope}
            label={scope}
            isChecked={chosen.includes(scope)}
            onChange={(isOn) =>
              onChange(ALL_SCOPES.filter((item) => (item === scope ? isOn : chosen.includes(item))))
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
  onDone(): void;
}

/** The secret of a new key, with a button to copy it. */
export function SecretOnce({ secret, isBusy = false, onDone }: SecretOnceProps) {
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
      <footer>
        <Button type="submit" variant="primary" isBusy={isBusy}>
          Done
        </Button>
      </footer>
    </form>
  );
}

function entriesOf(key: ListedKey | undefined): Entries {
  const text = (value: number | null | undefined) => value?.toString() ?? "";
  return {
    name: key?.name ?? "",
    rpm: text(key?.rate_limit_rpm),
    tpm: text(key?.rate_limit_tpm),
    daily: text(key?.daily_budget_usd),
    monthly: text(key?.monthly_budget_usd),
    includesByok: key?.budget_includes_byok ?? false,
    models: key?.allowed_models?.join(", ") ?? "",
    expires: key?.expires_at?.slice(0, 10) ?? "",
    scopes: key?.scopes ?? ALL_SCOPES,
  };
}

/** Returns the request body of a form. Omits an unchanged expiry and unchanged scopes. */
function bodyOf(entries: Entries, edited: ListedKey | undefined) {
  const models = entries.models
    .split(",")
    .map((id) => id.trim())
    .filter((id) => id !== "");
  const before = entriesOf(edited);
  if (entries.scopes.length === 0) {
    throw new ApiError(400, "invalid_body", "Choose at least one scope.", "scopes");
  }
  return {
    name: entries.name,
    rate_limit_rpm: numberIn(entries.rpm, "Requests per minute"),
    rate_limit_tpm: numberIn(entries.tpm, "Tokens per minute"),
    daily_budget_usd: numberIn(entries.daily, "Daily budget"),
    monthly_budget_usd: numberIn(entries.monthly, "Monthly budget"),
    budget_includes_byok: entries.includesByok,
    allowed_models: models.length === 0 ? null : models,
    ...(entries.expires !== before.expires && {
      expires_at: entries.expires === "" ? null : entries.expires,
    }),
    ...(entries.scopes.join() !== before.scopes.join() && { scopes: entries.scopes }),
  };
}

/** Returns the number in a field, or null if the field is empty. Throws if the text is not a number. */
export function numberIn(text: string, field: string): number | null {
  const trimmed = text.trim().replace(/^\$/, "");
  if (trimmed === "") return null;
  const value = Number(trimmed);
  if (Number.isFinite(value)) return value;
  throw new ApiError(400, "invalid_body", `${field} must be a number.`, null);
}
