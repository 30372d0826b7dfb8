import { useState } from "preact/hooks";
import { OPERATOR_ROLES, ROLES } from "../../../lib/roles.ts";
import { call } from "../api.ts";
import { Button, Check, Choice, CopyText, Field } from "../components/controls.tsx";
import { Confirm, Dialog, Form, toast } from "../components/dialog.tsx";
import { Empty, PageHead, Panel } from "../components/display.tsx";
import { Rows } from "../components/rows.tsx";
import { type Column, Table } from "../components/table.tsx";
import { titled } from "../format.ts";
import { useResource } from "../resource.ts";
import { dashboardUrl } from "../router.ts";

interface Rule {
  readonly claim: string;
  readonly value: string;
  readonly organization_id?: string;
  readonly role?: string;
  readonly team_ids?: readonly string[];
  readonly operator_role?: string;
}

/** An entry of GET /v1/admin/identity_providers. */
interface IdentityProvider {
  readonly id: string;
  readonly name: string;
  readonly issuer: string;
  readonly client_id: string;
  readonly scopes: string;
  readonly vouches_for_email: boolean;
  readonly rules: readonly Rule[];
}

interface OrganizationList {
  readonly data: readonly { readonly id: string; readonly name: string }[];
}

const PATH = "v1/admin/identity_providers";
const MAX_RULES = 500;
const BLANK: Rule = { claim: "groups", value: "", operator_role: OPERATOR_ROLES[1] };

/** Issuers of OpenID Connect at which people sign in. For operators. */
export function IdentityProvidersPage() {
  const [edited, setEdited] = useState<IdentityProvider | "new">();
  const [deleting, setDeleting] = useState<IdentityProvider>();
  const { data, error, reload } = useResource<{ data: IdentityProvider[] }>(PATH);
  return (
    <>
      <PageHead title="Identity providers">
        <Button needs="operator" variant="primary" onClick={() => setEdited("new")}>
          Add identity provider
        </Button>
      </PageHead>
      <Panel isFlush>
        <Table
          label="Identity providers"
          columns={columns(setEdited, setDeleting)}
          rows={data?.data}
          error={error}
          keyOf={({ id }) => id}
          empty={
            <Empty title="No identity providers yet">
              <p>
                People sign in with OpenID Connect, for example at Okta, Entra ID or Google. Rules
                give roles to their groups.
              </p>
            </Empty>
          }
        />
      </Panel>
      {edited !== undefined && (
        <ProviderDialog
          edited={edited === "new" ? undefined : edited}
          onChanged={reload}
          onClose={() => setEdited(undefined)}
        />
      )}
      {deleting !== undefined && (
        <Confirm
          title={`Delete ${deleting.name}?`}
          action="Delete"
          onConfirm={async () => {
            await call("DELETE", `${PATH}/${deleting.id}`);
            toast(`Deleted ${deleting.name}.`);
            setDeleting(undefined);
            reload();
          }}
          onClose={() => setDeleting(undefined)}
        >
          People can no longer sign in there. They keep their accounts. Memberships and roles that
          only this provider grants end, with the sessions and keys of these members.
        </Confirm>
      )}
    </>
  );
}

function columns(
  onEdit: (provider: IdentityProvider) => void,
  onDelete: (provider: IdentityProvider) => void,
): Column<IdentityProvider>[] {
  return [
    {
      title: "Name",
      cell: ({ name, issuer }) => (
        <span>
          <span class="strong">{name}</span>
          <span class="sub">{issuer}</span>
        </span>
      ),
    },
    { title: "Rules", isNumber: true, cell: ({ rules }) => String(rules.length) },
    {
      title: "Redirect URI",
      cell: ({ id }) => <CopyText label="redirect URI" text={redirectUri(id)} />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (provider) => (
        <span class="actions">
          <Button
            needs="operator"
            variant="quiet"
            label={`Edit ${provider.name}`}
            onClick={() => onEdit(provider)}
          >
            Edit
          </Button>
          <Button
            needs="operator"
            variant="quiet"
            label={`Delete ${provider.name}`}
            onClick={() => onDelete(provider)}
          >
            Delete
          </Button>
        </span>
      ),
    },
  ];
}

/** Returns the URI to register at the issuer. */
function redirectUri(id: string): string {
  return new URL(`sign-on/${id}/callback`, dashboardUrl).href;
}

interface ProviderDialogProps {
  readonly edited: IdentityProvider | undefined;
  onChanged(): void;
  onClose(): void;
}

function ProviderDialog({ edited, onChanged, onClose }: ProviderDialogProps) {
  const [name, setName] = useState(edited?.name ?? "");
  const [issuer, setIssuer] = useState(edited?.issuer ?? "");
  const [clientId, setClientId] = useState(edited?.client_id ?? "");
  const [secret, setSecret] = useState("");
  const [vouches, setVouches] = useState(edited?.vouches_for_email ?? false);
  const [rules, setRules] = useState<readonly Rule[]>(
    edited === undefined || edited.rules.length === 0 ? [BLANK] : edited.rules,
  );
  const [made, setMade] = useState<IdentityProvider>();
  const { data: organizations } = useResource<OrganizationList>("v1/admin/organizations?limit=200");
  const save = async () => {
    const body = {
      ...{ name: name.trim(), issuer: issuer.trim(), client_id: clientId.trim() },
      ...(secret !== "" && { client_secret: secret }),
      ...{ vouches_for_email: vouches, rules: rules.filter(({ value }) => value.trim() !== "") },
    };
    if (edited === undefined) setMade(await call<IdentityProvider>("POST", PATH, { body }));
    else {
      await call("PATCH", `${PATH}/${edited.id}`, { body });
      toast(`Updated ${body.name}.`);
      onClose();
    }
    onChanged();
  };
  if (made !== undefined) {
    return (
      <Dialog title={`Added ${made.name}`} onClose={onClose}>
        <div class="form">
          <p class="message">Register this redirect URI at the issuer:</p>
          <CopyText label="redirect URI" text={redirectUri(made.id)} />
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
    <Dialog
      title={edited === undefined ? "Add an identity provider" : `Edit ${edited.name}`}
      onClose={onClose}
    >
      <Form submit={edited === undefined ? "Add" : "Save"} onCancel={onClose} onSubmit={save}>
        <Field
          label="Name"
          param="name"
          value={name}
          onInput={setName}
          isRequired
          placeholder="Acme"
          hint={'The text on the button after "Sign in with"'}
        />
        <Field
          label="Issuer"
          param="issuer"
          value={issuer}
          onInput={setIssuer}
          isRequired
          placeholder="https://login.example.com"
        />
        <Field
          label="Client ID"
          param="client_id"
          value={clientId}
          onInput={setClientId}
          isRequired
        />
        <Field
          label="Client secret"
          param="client_secret"
          type="password"
          value={secret}
          onInput={setSecret}
          isRequired={edited === undefined}
          placeholder={edited === undefined ? "" : "Unchanged"}
          autocomplete="off"
        />
        <Check
          label="Addresses count as verified although the issuer does not say so"
          isChecked={vouches}
          onChange={setVouches}
        />
        <Rows
          legend="Rules"
          rows={rules}
          blank={BLANK}
          max={MAX_RULES}
          add="Add rule"
          name="rule"
          hint="People with the value in the claim get the role, as long as they have the value."
          onChange={setRules}
          fields={(rule, set, number) => (
            <RuleFields
              {...{ rule, number, organizations: organizations?.data ?? [] }}
              onChange={set}
            />
          )}
        />
      </Form>
    </Dialog>
  );
}

interface RuleFieldsProps {
  readonly rule: Rule;
  readonly number: number;
  readonly organizations: OrganizationList["data"];
  onChange(changed: Partial<Rule>): void;
}

function RuleFields({ rule, number, organizations, onChange }: RuleFieldsProps) {
  const { organization_id: organization, role = "viewer", operator_role: operator } = rule;
  const isListed =
    organization === undefined || organizations.some(({ id }) => id === organization);
  const choose = (id: string) =>
    onChange(
      id === ""
        ? {
            organization_id: undefined,
            role: undefined,
            team_ids: undefined,
            operator_role: OPERATOR_ROLES[1],
          }
        : { organization_id: id, role, operator_role: undefined },
    );
  return (
    <>
      <Field
        label={`Claim ${number}`}
        value={rule.claim}
        onInput={(claim) => onChange({ claim })}
      />
      <Field
        label={`Value ${number}`}
        value={rule.value}
        onInput={(value) => onChange({ value })}
        placeholder="engineering"
      />
      <Choice
        label={`Role in ${number}`}
        value={organization ?? ""}
        options={[
          ["", "The gateway (operators)"],
          ...organizations.map(({ id, name }) => [id, name] as const),
          ...(isListed ? [] : [[organization, organization] as const]),
        ]}
        onChange={choose}
      />
      <Choice
        label={`Role ${number}`}
        value={organization === undefined ? (operator ?? "") : role}
        options={(organization === undefined ? OPERATOR_ROLES : ROLES).map(
          (one) => [one, titled(one)] as const,
        )}
        onChange={(chosen) =>
          onChange(organization === undefined ? { operator_role: chosen } : { role: chosen })
        }
      />
    </>
  );
}
