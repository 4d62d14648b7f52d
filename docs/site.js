// The search is a dialog; say what it is to those who cannot see it.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
