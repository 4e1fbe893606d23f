// Small comforts. Every page works without them.

const YEAR_S = 365 * 24 * 3600;

// Theme: the form sets the same cookie by itself; here the page changes at once.
document.addEventListener("submit", (event) => {
  const form = event.target;
  const button = event.submitter;
  if (!form.matches("[data-theme-form]") || !button) return;
  event.preventDefault();
  const theme = button.value;
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `theme=${theme}; path=/; max-age=${theme ? YEAR_S : 0}; SameSite=Lax${secure}`;
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  for (const other of form.querySelectorAll("button[name=theme]")) {
    other.setAttribute("aria-pressed", String(other === button));
  }
});

// Copy: the button stands beside the text it copies.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent.trim();
  const label = button.querySelector("[data-copy-label]");
  try {
    await navigator.clipboard.writeText(text);
    label.textContent = button.dataset.done;
  } catch {
    const range = document.createRange();
    range.selectNodeContents(document.getElementById(button.dataset.copy));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    label.textContent = button.dataset.failed;
  }
});
for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;

// Menus: one open at a time, closed by Escape or a click elsewhere.
const menus = () => document.querySelectorAll("details.menu[open]");
document.addEventListener("click", (event) => {
  for (const menu of menus()) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of menus()) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});
