import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Scope } from "../../../../lib/api-key-record.ts";
import { Link } from "../../components/controls.tsx";
import { Empty, PageHead } from "../../components/display.tsx";
import { mayRead } from "../../rights.ts";
import { sectionName } from "../../router.ts";
import { BillingSection } from "./billing.tsx";
import { GuardrailsSection } from "./guardrails.tsx";
import { OrganizationSection } from "./organization.tsx";
import { PresetsSection } from "./presets.tsx";
import { ProviderKeysSection } from "./provider-keys.tsx";
import "./settings.css";

interface SettingsSection {
  /** Path segment under the page. Empty for the first section. */
  readonly name: string;
  readonly title: string;
  /** Scope of what the section shows. */
  readonly needs: Scope;
  readonly Section: ComponentType;
}

export const SETTINGS_SECTIONS: readonly SettingsSection[] = [
  { name: "", title: "Organization", needs: "usage:read", Section: OrganizationSection },
  { name: "billing", title: "Billing", needs: "billing:read", Section: BillingSection },
  {
    ...{ name: "provider-keys", title: "Provider keys" },
    ...{ needs: "provider_keys:manage" as const, Section: ProviderKeysSection },
  },
  { name: "presets", title: "Presets", needs: "presets:manage", Section: PresetsSection },
  {
    ...{ name: "guardrails", title: "Guardrails" },
    ...{ needs: "guardrails:manage" as const, Section: GuardrailsSection },
  },
];

export function SettingsPage() {
  const current = SETTINGS_SECTIONS.find(({ name }) => name === sectionName.value)!;
  const sections = useRef<HTMLElement>(null);
  useEffect(() => {
    // On narrow screens the list of sections scrolls.
    const link = sections.current?.querySelector("[aria-current]");
    link?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [current]);
  return (
    <>
      <PageHead title="Settings" section={current.title} />
      <nav ref={sections} class="tabs" aria-label="Settings sections">
        {SETTINGS_SECTIONS.filter(({ needs }) => mayRead(needs)).map(({ name, title }) => (
          <Link
            key={name}
            page={name === "" ? "settings" : `settings/${name}`}
            isCurrent={name === current.name}
          >
            {title}
          </Link>
        ))}
      </nav>
      {mayRead(current.needs) ? (
        <current.Section />
      ) : (
        <Empty title="Your role does not show this section." />
      )}
    </>
  );
}
