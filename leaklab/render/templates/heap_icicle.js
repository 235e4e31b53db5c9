drawAll("icicle", (place, data) => new Icicle(place, data.devices));
