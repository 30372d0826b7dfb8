import { useState } from "preact/hooks";
import { ApiError, call } from "../../api.ts";
import { Button, Choice, Field } from "../../components/controls.tsx";
import { Confirm, Dialog, Form, toast } from "../../components/dialog.tsx";
import { Badge, Empty, Panel, Time } from "../../components/display.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { useResource } from "../../resource.ts";

/** A key in the answer of GET /v1/provider_keys. */
interface ProviderKey {
  readonly id: string;
  readonly provider: string;
  readonly name: string;
  readonly key_prefix: string;
  readonly is_valid: boolean;
  readonly created_at: string;
}

interface Provider {
  readonly id: string;
  readonly needs_base_url: boolean;
}

export function ProviderKeysSection() {
  const [isAdding, setAdding] = useState(false);
  const [deleted, setDeleted] = useState<ProviderKey>();
  const { data, error, reload } = useResource<{ data: ProviderKey[] }>("v1/provider_keys");
  const choices = useResource<{ providers: Provider[] }>("settings/choices");
  const providers = choices.data?.providers;
  return (
    <Panel
      title="Provider keys"
      aside={
        providers?.length !== 0 && (
          <Button
            needs="provider_keys:manage"
            variant="primary"
            isDisabled={providers === undefined}
            onClick={() => setAdding(true)}
          >
            Add provider key
          </Button>
        )
      }
      isFlush
    >
      <p class="panel-lead">
        If you add your own key for a provider, calls to the provider use it and cost nothing here.
        The provider bills you.
      </p>
      <Table
        label="Provider keys"
        columns={columns(setDeleted)}
        rows={data?.data}
        error={error ?? choices.error}
        keyOf={({ id }) => id}
        empty={
          providers?.length === 0 ? (
            <Empty title="No provider of this gateway accepts your own keys">
              <p>Ask the operator of the gateway to add a provider.</p>
            </Empty>
          ) : (
            <Empty title="No provider keys yet">
              <p>Add the key of your account at a provider, such as OpenAI.</p>
            </Empty>
          )
        }
      />
      {isAdding && providers !== undefined && (
        <AddKeyDialog providers={providers} onChanged={reload} onClose={() => setAdding(false)} />
      )}
      {deleted !== undefined && (
        <Confirm
          title="Delete this provider key?"
          action="Delete provider key"
          onClose={() => setDeleted(undefined)}
          onConfirm={async () => {
            await call("DELETE", `v1/provider_keys/${deleted.id}`);
            toast(`Deleted ${deleted.name}.`);
            setDeleted(undefined);
            reload();
          }}
        >
          Calls to {deleted.provider} no longer use <b>{deleted.name}</b>. Without another key they
          are charged to your balance, or rejected on the BYOK plan.
        </Confirm>
      )}
    </Panel>
  );
}

function columns(onDelete: (key: ProviderKey) => void): Column<ProviderKey>[] {
  return [
    {
      title: "Name",
      cell: ({ name, key_prefix: prefix }) => (
        <span>
          <span class="strong">{name}</span>
          <span class="sub code">{prefix}…</span>
        </span>
      ),
    },
    { title: "Provider", cell: ({ provider }) => provider },
    {
      title: "State",
      isCorner: true,
      cell: ({ is_valid: isValid }) =>
        isValid ? <Badge tone="good">Valid</Badge> : <Badge tone="bad">Rejected</Badge>,
    },
    {
      title: "Added",
      isSecondary: true,
      cell: ({ created_at: at }) => <Time iso={at} form="date" />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (key) => (
        <Button
          needs="provider_keys:manage"
          variant="quiet"
          label={`Delete ${key.name}`}
          onClick={() => onDelete(key)}
        >
          Delete
        </Button>
      ),
    },
  ];
}

interface AddKeyProps {
  readonly providers: readonly Provider[];
  onChanged(): void;
  onClose(): void;
}

/** The form for a new key. Only this form has the secret, and only while it is open. */
function AddKeyDialog({ providers, onChanged, onClose }: AddKeyProps) {
  const [providerId, setProviderId] = useState(providers[0]?.id ?? "");
  const [name, setName] = useState("");
  const [key, setKey] = useState("");
  const [baseUrl, setBaseUrl] = useState("");
  const needsUrl = providers.find(({ id }) => id === providerId)?.needs_base_url ?? false;
  const add = async () => {
    const body = {
      provider: providerId,
      key: key.trim(),
      ...(name !== "" && { name }),
      ...(baseUrl !== "" && { base_url: baseUrl }),
    };
    try {
      await call("POST", "v1/provider_keys", { body });
    } catch (error) {
      // Other errors can be corrected with the same secret.
      if (error instanceof ApiError && error.param === "key") setKey("");
      throw error;
    }
    toast("Added the provider key.");
    onClose();
    onChanged();
  };
  return (
    <Dialog title="Add a provider key" onClose={onClose}>
      <Form submit="Add" onCancel={onClose} onSubmit={add}>
        <Choice
          label="Provider"
          param="provider"
          value={providerId}
          options={providers.map(({ id }) => [id, id] as const)}
          onChange={setProviderId}
        />
        <Field
          label="Secret"
          param="key"
          type="password"
          value={key}
          onInput={setKey}
          isRequired
          autocomplete="off"
          hint="The gateway checks it with the provider, stores it encrypted, and never shows it again."
        />
        <Field label="Name" param="name" value={name} onInput={setName} placeholder={providerId} />
        <Field
          label="Base URL"
          param="base_url"
          type="url"
          value={baseUrl}
          onInput={setBaseUrl}
          isRequired={needsUrl}
          placeholder={needsUrl ? "https://example.com/v1" : "Provider default"}
          hint="Only for your own server: a public https URL including the API version"
        />
      </Form>
    </Dialog>
  );
}
