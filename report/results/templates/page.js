'use strict';
// Charts: no expression is compiled, nothing is fetched, and what a chart cannot draw leaves its table.
const specs = document.getElementById('charts');
if (specs && window.vegaEmbed) {
  const options = {actions: false, renderer: 'svg', ast: true, logLevel: 1, tooltip: {theme: 'custom', disableDefaultStyle: false}};
  const drawn = Object.entries(JSON.parse(specs.textContent)).map(([id, spec]) =>
    window.vegaEmbed('#' + id, spec, options).then(made => {
      addEventListener('beforeprint', () => made.view.resize().run());
    }));
  Promise.all(drawn).then(() => { document.documentElement.dataset.drawn = drawn.length; });
}
addEventListener('beforeprint', () => { for (const one of document.querySelectorAll('details.more')) one.open = true; });
for (const button of document.querySelectorAll('[data-copy]')) {
  button.hidden = false;
  button.addEventListener('click', () => {
    const text = button.previousElementSibling;
    const range = document.createRange();
    range.selectNodeContents(text);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    const copied = navigator.clipboard ? navigator.clipboard.writeText(text.textContent) : Promise.reject();
    copied.catch(() => document.execCommand('copy')).then(() => { button.textContent = 'Copied'; });
  });
}
const value = cell => {
  const text = cell ? cell.textContent.trim() : '';
  const number = Number(text.replace(/[,$%]/g, ''));
  return text !== '' && !Number.isNaN(number) ? number : text;
};
for (const filter of document.querySelectorAll('.filter')) {
  const table = filter.parentElement.querySelector('table'), body = table.tBodies[0];
  const rows = [...body.rows], said = filter.querySelector('output'), input = filter.querySelector('input');
  filter.hidden = false;
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let num = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
      num += row.hidden ? 0 : 1;
    }
    said.textContent = num + ' of ' + rows.length + ' rows';
  };
  input.addEventListener('input', show);
  show();
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = head.textContent;
    head.replaceChildren(button);
    head.setAttribute('aria-sort', 'none');
    button.addEventListener('click', () => {
      const up = head.getAttribute('aria-sort') !== 'ascending';
      for (const other of table.tHead.rows[0].cells) other.setAttribute('aria-sort', 'none');
      head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      const order = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a < typeof b ? -1 : 1;
      rows.sort((a, b) => (up ? 1 : -1) * order(value(a.cells[at]), value(b.cells[at])));
      body.append(...rows);
    });
  });
}
