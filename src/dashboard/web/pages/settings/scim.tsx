import { useState } from "preact/hooks";
import { call } from "../../api.ts";
import { Button, CopyText, Field } from "../../components/controls.tsx";
import { Confirm, Dialog, Form, toast } from "../../components/dialog.tsx";
import { Empty, Panel, Time } from "../../components/display.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { useResource } from "../../resource.ts";
import { gatewayUrl } from "../../router.ts";

/** A token in the answer of GET /v1/scim_tokens. */
interface ScimToken {
  readonly id: string;
  readonly name: string;
  readonly key_prefix: string;
  readonly created_at: string;
}

/** Tokens with which a directory manages the members and teams of the organization. */
export function ScimTokens() {
  const { data, error, reload } = useResource<{ data: ScimToken[] }>("v1/scim_tokens");
  const [isAdding, setAdding] = useState(false);
  const [revoking, setRevoking] = useState<ScimToken>();
  return (
    <Panel
      title="SCIM"
      isFlush
      aside={
        <Button needs="keys:manage" onClick={() => setAdding(true)}>
          Create token
        </Button>
      }
    >
      <p class="panel-lead">
        A directory, such as Okta or Entra ID, manages members and teams at{" "}
        <code class="code">{new URL("scim/v2", gatewayUrl).href}</code>.
      </p>
      <Table
        label="SCIM tokens"
        columns={columns(setRevoking)}
        rows={data?.data}
        error={error}
        keyOf={({ id }) => id}
        empty={
          <Empty title="No SCIM tokens yet">
            <p>Create a token, and enter it in the directory with this address.</p>
          </Empty>
        }
      />
      {isAdding && <TokenDialog onChanged={reload} onClose={() => setAdding(false)} />}
      {revoking !== undefined && (
        <Confirm
          title={`Revoke ${revoking.name}?`}
          action="Revoke"
          onConfirm={async () => {
            await call("DELETE", `v1/keys/${revoking.id}`);
            toast(`Revoked ${revoking.name}.`);
            setRevoking(undefined);
            reload();
          }}
          onClose={() => setRevoking(undefined)}
        >
          The directory can no longer change members and teams. They stay as they are.
        </Confirm>
      )}
    </Panel>
  );
}

function columns(onRevoke: (token: ScimToken) => void): Column<ScimToken>[] {
  return [
    {
      title: "Token",
      cell: ({ name, key_prefix: prefix }) => (
        <span>
          <span class="strong">{name}</span>
          <span class="sub code">{prefix}</span>
        </span>
      ),
    },
    { title: "Created", cell: ({ created_at: at }) => <Time iso={at} form="date" /> },
    {
      title: "Actions",
      isAction: true,
      cell: (token) => (
        <Button
          needs="keys:manage"
          variant="quiet"
          label={`Revoke ${token.name}`}
          onClick={() => onRevoke(token)}
        >
          Revoke
        </Button>
      ),
    },
  ];
}

function TokenDialog({ onChanged, onClose }: { onChanged(): void; onClose(): void }) {
  const [name, setName] = useState("");
  const [token, setToken] = useState<string>();
  const create = async () => {
    const body = { name: name.trim() };
    setToken((await call<{ token: string }>("POST", "v1/scim_tokens", { body })).token);
    onChanged();
  };
  if (token !== undefined) {
    return (
      <Dialog title="Copy the token" onClose={onClose}>
        <div class="form">
          <p class="message">It is shown only now.</p>
          <CopyText label="SCIM token" text={token} />
          <footer>
            <Button variant="primary" onClick={onClose}>
              Done
            </Button>
          </footer>
        </div>
      </Dialog>
    );
  }
  return (
    <Dialog title="Create a SCIM token" onClose={onClose}>
      <Form submit="Create" onCancel={onClose} onSubmit={create}>
        <Field
          label="Name"
          param="name"
          value={name}
          onInput={setName}
          isRequired
          placeholder="Okta"
        />
      </Form>
    </Dialog>
  );
}
