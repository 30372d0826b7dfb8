import { useState } from "preact/hooks";
import { call } from "../api.ts";
import { Button, Field } from "../components/controls.tsx";
import { Confirm, Dialog, Form, toast } from "../components/dialog.tsx";
import { Badge, Empty, Panel, Time } from "../components/display.tsx";
import { type Column, Table } from "../components/table.tsx";
import { addPasskey, canUsePasskeys } from "../passkeys.ts";
import { useResource } from "../resource.ts";

/** A passkey in the answer of GET /dashboard/api/account/passkeys. */
interface Passkey {
  readonly id: string;
  readonly name: string;
  /** True if the passkey is synchronised between devices. */
  readonly is_backed_up: boolean;
  readonly created_at: string;
  readonly last_used_at: string | null;
}

interface PasskeyList {
  readonly data: readonly Passkey[];
  /** True if adding a passkey takes the current password. */
  readonly needs_password: boolean;
}

/** The passkeys of the account. */
export function Passkeys() {
  const { data: list, error, reload } = useResource<PasskeyList>("account/passkeys");
  const [isAdding, setAdding] = useState(false);
  const [deleting, setDeleting] = useState<Passkey>();
  const close = () => setDeleting(undefined);
  const remove = async ({ id, name }: Passkey) => {
    await call("DELETE", `account/passkeys/${id}`);
    toast(`Deleted ${name}.`);
    close();
    reload();
  };
  return (
    <Panel
      title="Passkeys"
      aside={
        <Button isDisabled={!canUsePasskeys || list === undefined} onClick={() => setAdding(true)}>
          Add passkey
        </Button>
      }
      isFlush
    >
      <p class="panel-lead">
        A passkey signs you in without your password and second factor. Your device keeps it, and
        asks for your fingerprint, face or PIN.
      </p>
      <Table<Passkey>
        label="Passkeys"
        columns={columns(setDeleting)}
        rows={list?.data}
        error={error}
        keyOf={({ id }) => id}
        empty={<Empty title="No passkeys" />}
      />
      {isAdding && list !== undefined && (
        <AddDialog
          needsPassword={list.needs_password}
          onAdded={reload}
          onClose={() => setAdding(false)}
        />
      )}
      {deleting !== undefined && (
        <Confirm
          title={`Delete ${deleting.name}?`}
          action="Delete passkey"
          onClose={close}
          onConfirm={() => remove(deleting)}
        >
          The passkey no longer signs in. Delete it on your device too. Open sessions stay open.
        </Confirm>
      )}
    </Panel>
  );
}

interface AddDialogProps {
  readonly needsPassword: boolean;
  onAdded(): void;
  onClose(): void;
}

function AddDialog({ needsPassword, onAdded, onClose }: AddDialogProps) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const add = async () => {
    await addPasskey(name.trim(), password);
    toast("Added the passkey.");
    onClose();
    onAdded();
  };
  return (
    <Dialog title="Add a passkey" onClose={onClose}>
      <Form submit="Continue" isDisabled={name.trim() === ""} onCancel={onClose} onSubmit={add}>
        <Field
          label="Name"
          param="name"
          value={name}
          onInput={setName}
          isRequired
          placeholder="Laptop"
          hint="By which you recognise the device"
        />
        {needsPassword && (
          <Field
            label="Current password"
            param="password"
            type="password"
            value={password}
            onInput={setPassword}
            isRequired
            autocomplete="current-password"
          />
        )}
      </Form>
    </Dialog>
  );
}

function columns(onDelete: (passkey: Passkey) => void): Column<Passkey>[] {
  return [
    {
      title: "Name",
      cell: ({ name, is_backed_up: isBackedUp }) => (
        <span>
          <span class="strong">{name}</span> {isBackedUp && <Badge>Synchronised</Badge>}
        </span>
      ),
    },
    {
      title: "Last used",
      cell: ({ last_used_at: at }) => <Time iso={at} otherwise="Never" />,
    },
    {
      title: "Created",
      isSecondary: true,
      cell: ({ created_at: at }) => <Time iso={at} form="date" />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (passkey) => (
        <Button variant="quiet" label={`Delete ${passkey.name}`} onClick={() => onDelete(passkey)}>
          Delete
        </Button>
      ),
    },
  ];
}
