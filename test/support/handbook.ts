/*
 * 200 pages of ten shops about twenty matters each: every question shares its words with all pages of its matter
 * and with all pages of its shop, and one page answers it.
 */

const SHOPS = [
  "Alder Books",
  "Birch Outdoor",
  "Cedar Kitchen",
  "Dogwood Garden",
  "Elm Electronics",
  "Fir Furniture",
  "Ginkgo Pharmacy",
  "Hazel Toys",
  "Ivy Stationery",
  "Juniper Music",
];

interface Matter {
  readonly name: string;
  page(shop: string, n: number): string;
  question(shop: string): string;
}

const matter = (name: string, page: Matter["page"], question: Matter["question"]): Matter => ({
  name,
  page,
  question,
});

const MATTERS: readonly Matter[] = [
  matter(
    "returns",
    (s, n) =>
      `Customers may return goods to ${s} within ${14 + n} days of delivery. The goods must be unused and in their box. Refunds are paid to the original card.`,
    (s) => `Within how many days can I return goods to ${s}?`,
  ),
  matter(
    "warranty",
    (s, n) =>
      `${s} gives a warranty of ${1 + n} years on manufacturing defects. Wear and accidental damage are excluded. Keep the receipt as proof.`,
    (s) => `How many years of warranty does ${s} give?`,
  ),
  matter(
    "shipping",
    (s, n) =>
      `Parcels from ${s} are shipped with a carrier and arrive after ${2 + n} working days. Bulky parcels take a week longer. Tracking numbers come by e-mail.`,
    (s) => `How long does a parcel of ${s} take to arrive?`,
  ),
  matter(
    "opening",
    (s, n) =>
      `The branch of ${s} opens at ${7 + (n % 4)} in the morning and closes at ${18 + (n % 3)}. On Sundays and holidays it stays closed.`,
    (s) => `When does ${s} open in the morning?`,
  ),
  matter(
    "gift-cards",
    (s, n) =>
      `A gift card of ${s} is valid for ${12 + n} months. It cannot be exchanged for cash, and a lost card is not replaced.`,
    (s) => `Do gift cards of ${s} expire, and are lost cards replaced?`,
  ),
  matter(
    "loyalty",
    (s, n) =>
      `Members of the loyalty programme of ${s} collect ${n + 1} points for each euro. A thousand points are a voucher of five euros.`,
    (s) => `How many loyalty points do members collect at ${s}?`,
  ),
  matter(
    "payment",
    (s, n) =>
      `${s} accepts credit cards, bank transfers and invoices up to ${100 * (n + 1)} euros. Cheques are not accepted.`,
    (s) => `Can I pay ${s} by invoice or cheque?`,
  ),
  matter(
    "leave",
    (s, n) =>
      `Employees of ${s} have ${24 + n} days of annual leave. Unused leave expires at the end of March.`,
    (s) => `How much annual leave do employees of ${s} have?`,
  ),
  matter(
    "remote-work",
    (s, n) =>
      `Office staff of ${s} may work from home ${1 + (n % 4)} days a week, in agreement with their team lead.`,
    (s) => `Is working from home allowed for staff of ${s}?`,
  ),
  matter(
    "expenses",
    (s, n) =>
      `Travel expenses at ${s} are reimbursed within ${10 + n} days when the form and all receipts are handed in to accounting.`,
    (s) => `How fast are travel expenses reimbursed at ${s}?`,
  ),
  matter(
    "sick-notes",
    (s, n) =>
      `Whoever is ill tells ${s} before nine o'clock, and brings a doctor's certificate from day ${1 + (n % 5)} on.`,
    (s) => `From which day on is a doctor's certificate needed at ${s}?`,
  ),
  matter(
    "passwords",
    (s, n) =>
      `Passwords for computers of ${s} have at least ${10 + n} characters and are never shared. A password manager is provided.`,
    (s) => `How long must passwords be on computers of ${s}?`,
  ),
  matter(
    "fire-drill",
    (s, n) =>
      `In a fire the staff of ${s} leaves by the stairs and gathers at assembly point ${n + 1} in the yard. Lifts are not used.`,
    (s) => `Where is the assembly point of ${s} in a fire?`,
  ),
  matter(
    "parking",
    (s, n) =>
      `${s} has ${20 + 5 * n} parking spaces behind the building, two of them with chargers for electric cars.`,
    (s) => `Are there chargers for electric cars on the parking spaces of ${s}?`,
  ),
  matter(
    "complaints",
    (s, n) =>
      `Complaints about ${s} are answered by the service desk within ${24 + n} hours. Unsolved ones go to the ombudsman.`,
    (s) => `Who answers complaints about ${s}?`,
  ),
  matter(
    "privacy",
    (s, n) =>
      `${s} deletes personal data of customers ${2 + n} years after the last order. Requests for access go to the data protection officer.`,
    (s) => `When is personal data of customers deleted by ${s}?`,
  ),
  matter(
    "suppliers",
    (s, n) =>
      `Suppliers of ${s} are audited every ${6 + n} months for working conditions and environmental standards.`,
    (s) => `How often are suppliers of ${s} audited?`,
  ),
  matter(
    "training",
    (s, n) =>
      `Every apprentice of ${s} attends ${3 + n} training courses a year, paid by the company.`,
    (s) => `How many training courses does an apprentice of ${s} attend?`,
  ),
  matter(
    "recycling",
    (s, n) =>
      `Old packaging and batteries can be brought to ${s} for recycling, free of charge, up to ${5 + n} kilograms a visit.`,
    (s) => `Can I bring old batteries to ${s} for recycling?`,
  ),
  matter(
    "discounts",
    (s, n) =>
      `Students get a discount of ${5 + n} percent at ${s} when they show a valid student card at the till.`,
    (s) => `What discount do students get at ${s}?`,
  ),
];

/** Names and texts of 200 files. */
export function handbookPages(): { filename: string; text: string }[] {
  return SHOPS.flatMap((shop, n) =>
    MATTERS.map(({ name, page }) => ({ filename: pageName(shop, name), text: page(shop, n) })),
  );
}

/** 20 questions, each with the file that answers it. */
export function handbookQuestions(): { question: string; filename: string }[] {
  return MATTERS.map(({ name, question }, at) => {
    const shop = SHOPS[(at * 3) % SHOPS.length]!;
    return { question: question(shop), filename: pageName(shop, name) };
  });
}

/** The name says nothing of the matter. */
function pageName(shop: string, name: string): string {
  const shopAt = SHOPS.indexOf(shop);
  const matterAt = MATTERS.findIndex((one) => one.name === name);
  return `page-${shopAt * MATTERS.length + matterAt}.txt`;
}
