const filter = document.getElementById("filter"), count = document.getElementById("count");
const rows = [...document.getElementById("hosts").rows].map(row => [row, row.textContent.toLowerCase()]);
filter.addEventListener("input", () => {
  const wanted = filter.value.toLowerCase();
  let shown = 0;
  for (const [row, text] of rows) shown += !(row.hidden = !text.includes(wanted));
  count.textContent = wanted ? `${shown} of ${rows.length}` : "";
});
