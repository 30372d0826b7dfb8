import { useState } from "preact/hooks";
import { Choice, Field } from "../components/controls.tsx";
import { Dialog, Form } from "../components/dialog.tsx";
import { Rows } from "../components/rows.tsx";
import { useResource } from "../resource.ts";
import { saveEntry } from "./configuration-entry.tsx";
import { numberIn } from "./key-dialog.tsx";
import type { Provider } from "./providers.tsx";

export const PROVIDERS_PATH = "v1/admin/providers";
/** The largest number of keys of a provider. */
const MAX_KEYS = 64;

/** A key in the form, with its weight as text. */
interface KeyRow {
  readonly key: string;
  readonly weight: string;
}

const BLANK: KeyRow = { key: "", weight: "" };

interface ProviderDialogProps {
  readonly edited: Provider | undefined;
  onChanged(): void;
  onClose(): void;
}

/** The form for a provider. Only this form has the key, and only while it is open. */
export function ProviderDialog({ edited, onChanged, onClose }: ProviderDialogProps) {
  const types = useResource<{ types: readonly string[] }>("settings/provider-types");
  const [type, setType] = useState(edited?.type ?? "openai-compatible");
  const [id, setId] = useState(edited?.id ?? "");
  const [baseUrl, setBaseUrl] = useState(edited?.base_url ?? "");
  const [keys, setKeys] = useState<readonly KeyRow[]>([BLANK]);
  const save = async () => {
    const stated = { ...(baseUrl !== "" && { base_url: baseUrl }), ...keysIn(keys) };
    await saveEntry(PROVIDERS_PATH, edited, {
      id,
      ...(edited === undefined && { type }),
      ...stated,
    });
    onClose();
    onChanged();
  };
  const names = types.data?.types ?? [type];
  return (
    <Dialog title={edited === undefined ? "Add a provider" : `Edit ${edited.id}`} onClose={onClose}>
      <Form submit={edited === undefined ? "Add" : "Save"} onCancel={onClose} onSubmit={save}>
        {edited === undefined && (
          <>
            <Choice
              label="Type"
              param="type"
              value={type}
              options={names.map((name) => [name, name] as const)}
              onChange={setType}
            />
            <Field
              label="Id"
              param="id"
              value={id}
              onInput={setId}
              isRequired
              placeholder={type}
              hint="The name of the provider in this gateway"
            />
          </>
        )}
        <Field
          label="Base URL"
          param="base_url"
          type="url"
          value={baseUrl}
          onInput={setBaseUrl}
          placeholder="Usual address of the type"
          hint="With the version segment, such as https://example.com/v1"
        />
        <Keys edited={edited} keys={keys} onChange={setKeys} />
      </Form>
    </Dialog>
  );
}

interface KeysProps {
  readonly edited: Provider | undefined;
  readonly keys: readonly KeyRow[];
  onChange(keys: readonly KeyRow[]): void;
}

/** Fields for the keys. A provider with one key needs no weight. */
function Keys({ edited, keys, onChange }: KeysProps) {
  const current = edited?.api_keys ?? [];
  const isOne = keys.length === 1;
  return (
    <>
      {current.length > 0 && (
        <div>
          <h3>Current keys</h3>
          <KeyList keys={current} />
        </div>
      )}
      <Rows
        legend={current.length > 0 ? "New keys" : "Keys"}
        rows={keys}
        blank={BLANK}
        max={MAX_KEYS}
        add="Add another key"
        name="key"
        hint={
          <>
            Stored encrypted, and never shown again.{" "}
            {!isOne && "A weight is a share of the calls. "}
            {edited !== undefined && "New keys replace all current keys."}
          </>
        }
        onChange={onChange}
        fields={({ key, weight }, set, number) => (
          <>
            <Field
              label={isOne ? "API key" : `Key ${number}`}
              type="password"
              value={key}
              onInput={(text) => set({ key: text })}
              autocomplete="off"
              placeholder={
                isOne && edited?.key_prefix !== undefined ? `${edited.key_prefix}…` : undefined
              }
            />
            {!isOne && (
              <div class="narrow">
                {" "}
                <Field
                  label={`Weight ${number}`}
                  value={weight}
                  onInput={(text) => set({ weight: text })}
                  inputMode="decimal"
                  placeholder="1"
                />
              </div>
            )}
          </>
        )}
      />
    </>
  );
}

/** The first characters of keys, with their weights. */
export function KeyList({ keys }: { readonly keys: NonNullable<Provider["api_keys"]> }) {
  return (
    <ul class="plain">
      {keys.map(({ key_prefix: prefix, weight = 1 }, index) => (
        <li key={`${index} ${prefix}`}>
          <span class="code">{prefix}…</span> <span class="quiet">weight {weight}</span>
        </li>
      ))}
    </ul>
  );
}

/** Returns the keys as members of the entry. Without a key the entry keeps its keys. */
function keysIn(rows: readonly KeyRow[]) {
  const filled = rows.filter(({ key }) => key !== "");
  if (filled.length === 0) return {};
  if (filled.length === 1) return { api_key: filled[0]!.key.trim() };
  const keys = filled.map(({ key, weight }) => ({
    key: key.trim(),
    ...(weight !== "" && { weight: numberIn(weight, "Weight") }),
  }));
  return { api_keys: keys };
}
