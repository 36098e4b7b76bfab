from streampgs.cli.main import main

main()
