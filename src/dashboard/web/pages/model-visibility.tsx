import { useState } from "preact/hooks";
import { ApiError } from "../api.ts";
import { Button, Check, Choice, Field } from "../components/controls.tsx";
import { Dialog, Form } from "../components/dialog.tsx";
import { type ConfiguredModel, MODELS_PATH } from "../models/configured-model.ts";
import { useResource } from "../resource.ts";
import { saveEntry } from "./configuration-entry.tsx";
import type { Organization } from "./organizations.tsx";

/** The largest page of GET /v1/admin/organizations. */
const PAGE_SIZE = 200;
/** Organizations that are listed before someone searches. */
const SHOWN = 8;

interface VisibilityDialogProps {
  readonly model: ConfiguredModel;
  onChanged(): void;
  onClose(): void;
}

/** Chooses the organizations that see a stored model. */
export function VisibilityDialog({ model, onChanged, onClose }: VisibilityDialogProps) {
  const [organizations, setOrganizations] = useState(model.organizations);
  const save = async () => {
    await saveEntry(MODELS_PATH, model, {
      id: model.id,
      organizations: statedOrganizations(organizations) ?? null,
    });
    onClose();
    onChanged();
  };
  return (
    <Dialog title={`Visibility of ${model.id}`} onClose={onClose}>
      <Form submit="Save" onCancel={onClose} onSubmit={save}>
        <VisibilityFields organizations={organizations} onChange={setOrganizations} />
      </Form>
    </Dialog>
  );
}

interface VisibilityFieldsProps {
  /** Ids of the organizations that see the model. Undefined: all. */
  readonly organizations: readonly string[] | undefined;
  onChange(organizations: readonly string[] | undefined): void;
}

export function VisibilityFields({ organizations, onChange }: VisibilityFieldsProps) {
  return (
    <>
      <Choice
        label="Visible to"
        value={organizations === undefined ? "all" : "chosen"}
        options={[
          ["all", "All organizations"],
          ["chosen", "Chosen organizations"],
        ]}
        onChange={(value) => onChange(value === "all" ? undefined : [])}
      />
      {organizations !== undefined && (
        <OrganizationChoice chosen={organizations} onChange={onChange} />
      )}
    </>
  );
}

interface OrganizationChoiceProps {
  readonly chosen: readonly string[];
  onChange(chosen: readonly string[]): void;
}

/**
 * Organizations to choose. The list has the newest ones. An older organization is added by its id, as one that the
 * search does not find.
 */
function OrganizationChoice({ chosen, onChange }: OrganizationChoiceProps) {
  const [text, setText] = useState("");
  const { data, error } = useResource<{ data: Organization[] }>(
    `v1/admin/organizations?limit=${PAGE_SIZE}`,
  );
  const all = data?.data ?? [];
  const names = new Map(all.map(({ id, name }) => [id, name]));
  const term = text.trim();
  const found = all.filter(({ id, name }) =>
    `${id} ${name}`.toLowerCase().includes(term.toLowerCase()),
  );
  const others = found.map(({ id }) => id).filter((id) => !chosen.includes(id));
  const add = (id: string) => onChange([...chosen, id]);
  const isNewId = data !== undefined && found.length === 0 && !chosen.includes(term);
  return (
    <fieldset class="rows">
      <legend>Organizations</legend>
      <Field
        label="Search"
        type="search"
        value={text}
        onInput={setText}
        placeholder="Name or id"
        error={error}
      />
      <div class="stack">
        {[...chosen, ...others.slice(0, SHOWN)].map((id) => (
          <Check
            key={id}
            label={names.has(id) ? `${names.get(id)} (${id})` : id}
            isChecked={chosen.includes(id)}
            onChange={(isOn) => (isOn ? add(id) : onChange(chosen.filter((one) => one !== id)))}
          />
        ))}
      </div>
      {isNewId && (
        <div>
          <Button
            onClick={() => {
              add(term);
              setText("");
            }}
          >
            Add {term}
          </Button>
        </div>
      )}
      <p class="hint">
        For other organizations the model does not exist.
        {others.length > SHOWN && ` Search to find ${others.length - SHOWN} more.`}
      </p>
    </fieldset>
  );
}

/** Returns the organizations for an entry. Throws if none is chosen. Undefined stays undefined. */
export function statedOrganizations(
  organizations: readonly string[] | undefined,
): readonly string[] | undefined {
  if (organizations?.length !== 0) return organizations;
  throw new ApiError(400, "invalid_body", "Choose at least one organization.", "organizations");
}
