import { useState } from "preact/hooks";
import { ApiError, call } from "../api.ts";
import { Button, CopyText, Field } from "../components/controls.tsx";
import { Dialog, Form, toast } from "../components/dialog.tsx";
import { Notice } from "../components/display.tsx";
import type { ListedKey } from "./keys.tsx";

interface KeyDialogProps {
  /** Undefined for a new one. */
  readonly edited: ListedKey | undefined;
  onChanged(): void;
  onClose(): void;
}

interface Entries {
  readonly name: string;
  readonly rpm: string;
  readonly daily: string;
  readonly monthly: string;
  readonly models: string;
  readonly expires: string;
}

/** Creates a key, whose secret it shows once, or changes one. */
export function KeyDialog({ edited, onChanged, onClose }: KeyDialogProps) {
  const [entries, setEntries] = useState<Entries>(() => entriesOf(edited));
  const [secret, setSecret] = useState<string>();
  const enter = (name: keyof Entries) => (value: string) =>
    setEntries((before) => ({ ...before, [name]: value }));
  const save = async () => {
    const body = bodyOf(entries, edited);
    if (edited === undefined) {
      const created = await call<{ key: string }>("POST", "v1/keys", { body });
      setSecret(created.key);
    } else {
      await call("PATCH", `v1/keys/${edited.id}`, { body });
      toast(`Changed ${entries.name}.`);
      onClose();
    }
    onChanged();
  };
  if (secret !== undefined) {
    return (
      <Dialog title="Key created" onClose={onClose}>
        <Notice tone="warn">
          Copy the key now: it is shown only once, and the gateway keeps only a hash of it.
        </Notice>
        <CopyText text={secret} label="secret key" />
        <form
          onSubmit={(event) => {
            event.preventDefault();
            onClose();
          }}
        >
          <footer>
            <Button type="submit" variant="primary">
              Done
            </Button>
          </footer>
        </form>
      </Dialog>
    );
  }
  return (
    <Dialog
      title={edited === undefined ? "Create a secret key" : `Edit ${edited.name}`}
      onClose={onClose}
    >
      <Form submit={edited === undefined ? "Create" : "Save"} onCancel={onClose} onSubmit={save}>
        <Field label="Name" value={entries.name} onInput={enter("name")} isRequired />
        <Field
          label="Requests per minute"
          value={entries.rpm}
          onInput={enter("rpm")}
          inputMode="numeric"
          placeholder="No limit"
        />
        <div class="pair">
          <Field
            label="Daily budget"
            value={entries.daily}
            onInput={enter("daily")}
            inputMode="decimal"
            placeholder="No budget"
            hint="USD in a UTC day"
          />
          <Field
            label="Monthly budget"
            value={entries.monthly}
            onInput={enter("monthly")}
            inputMode="decimal"
            placeholder="No budget"
            hint="USD in a UTC month"
          />
        </div>
        <Field
          label="Allowed models"
          value={entries.models}
          onInput={enter("models")}
          placeholder="All models"
          hint="Ids separated by commas"
        />
        <Field
          label="Expires on"
          type="date"
          value={entries.expires}
          onInput={enter("expires")}
          hint="At the beginning of that day in UTC"
        />
      </Form>
    </Dialog>
  );
}

function entriesOf(key: ListedKey | undefined): Entries {
  const text = (value: number | null | undefined) => value?.toString() ?? "";
  return {
    name: key?.name ?? "",
    rpm: text(key?.rate_limit_rpm),
    daily: text(key?.daily_budget_usd),
    monthly: text(key?.monthly_budget_usd),
    models: key?.allowed_models?.join(", ") ?? "",
    expires: key?.expires_at?.slice(0, 10) ?? "",
  };
}

/** What a form says, as the API takes it; nothing of an expiry that was left as it is. */
function bodyOf(entries: Entries, edited: ListedKey | undefined) {
  const models = entries.models
    .split(",")
    .map((id) => id.trim())
    .filter((id) => id !== "");
  const keepsExpiry = entries.expires === (edited?.expires_at?.slice(0, 10) ?? "");
  return {
    name: entries.name,
    rate_limit_rpm: numberIn(entries.rpm, "Requests per minute"),
    daily_budget_usd: numberIn(entries.daily, "Daily budget"),
    monthly_budget_usd: numberIn(entries.monthly, "Monthly budget"),
    allowed_models: models.length === 0 ? null : models,
    ...(!keepsExpiry && { expires_at: entries.expires === "" ? null : entries.expires }),
  };
}

/** Null for an empty field. Throws where it holds no number. */
export function numberIn(text: string, field: string): number | null {
  const bare = text.trim().replace(/^\$/, "");
  if (bare === "") return null;
  const value = Number(bare);
  if (Number.isFinite(value)) return value;
  throw new ApiError(400, "invalid_body", `${field} must be a number.`, null);
}
